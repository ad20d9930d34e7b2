from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import t, ttest_ind
from tests.validation.made_up import section_of

from diffcredit.errors import UserError
from diffcredit.validation.presentation.photographs import same_noises
from diffcredit.validation.statistics.counterfactual import (
    ACTIONS,
    RANDOM,
    TrainingNoise,
    all_removals,
    best_of_categories,
    change_of_mean,
    change_scale,
    compare_removals,
    counterfactual_coalitions,
    pooled_noise,
    removals,
    share_count,
)
from diffcredit.validation.statistics.records import Contender

TEN, TWENTY, FORTY, SIXTY = ACTIONS


def text(row):
    return "".join("1" if member else "0" for member in row)


def contender(name, credits, category="shapley"):
    return Contender(name, category, "", np.asarray(credits, np.float64))


# --- who leaves


def test_counts_are_rounded_with_halves_up():
    for n in range(2, 300):
        for percent in (10, 20, 40, 60):
            exact = Fraction(percent * n, 100)
            assert share_count(percent, n) == max(1, int(exact + Fraction(1, 2)))
    assert [share_count(10, n) for n in (2, 14, 15, 25, 258)] == [1, 1, 2, 3, 26]


def test_the_top_leave_or_alone_stay():
    credits = np.array([5.0, -1, 3, 9, 0, 7, 2, 8, 1, 4])
    found = removals(credits)
    assert list(found) == [*(f"without the top {share} %" for share in (10, 20, 40)), "only the top 60 %"]
    gone = [{int(i) for i in np.flatnonzero(~row)} for row in found.values()]
    assert gone == [{3}, {3, 7}, {3, 7, 5, 0}, {6, 8, 4, 1}]


def test_nobody_is_left_alone_with_nothing_and_the_bottom_is_the_rest_of_the_top():
    for n in range(2, 60):
        credits = np.random.default_rng(n).normal(size=n)
        found = removals(credits)
        for row in found.values():
            assert 0 < row.sum() < n
        bottom = np.argsort(credits)[: share_count(40, n)]
        assert set(np.flatnonzero(~found[SIXTY.name])) == set(bottom)


def test_random_rankings_are_even_and_prefixes_of_each_other():
    ours = [contender("ours", np.arange(6.0))]
    found = all_removals(ours, 300, 3)[RANDOM]
    few = all_removals(ours, 5, 3)[RANDOM]
    assert all((a[name] == b[name]).all() for a, b in zip(found[:5], few, strict=True) for name in a)
    gone = np.array([~draw[FORTY.name] for draw in found])
    assert (gone.sum(axis=1) == 2).all()
    assert (np.abs(gone.sum(axis=0) - 100) < 4 * np.sqrt(300 * 2 / 9)).all()


def test_ties_are_broken_the_same_for_one_seed_and_evenly_over_seeds():
    credits = np.array([1.0, 0, 0, 0, 0])
    assert all((removals(credits, 7)[name] == row).all() for name, row in removals(credits, 7).items())
    # Two of five leave: the first always, and one of the four that are equal, each as often.
    counts = np.sum([~removals(credits, seed)[FORTY.name] for seed in range(400)], axis=0)
    assert counts[0] == 400
    assert (np.abs(counts[1:] - 100) < 4 * np.sqrt(400 * 0.25 * 0.75)).all()


# --- the change


def test_the_noise_is_pooled_within_coalitions():
    """As the error mean square of a one-way analysis of variance."""
    samples = [np.array([1.0, 2.0, 4.0]), np.array([10.0, 11.0]), np.array([5.0])]
    noise = pooled_noise(samples)
    within = 2 * np.var([1, 2, 4], ddof=1) + 1 * np.var([10, 11], ddof=1)
    assert (noise.variance, noise.freedom, noise.coalitions) == (pytest.approx(within / 3), 3, 2)
    unknown = pooled_noise(samples[2:])
    assert np.isnan(unknown.variance)
    assert (unknown.freedom, unknown.coalitions) == (0, 0)


def test_the_interval_is_the_delta_methods_with_the_pooled_noise():
    noise = TrainingNoise(0.25, 12, 9)
    # (A − B)/B = A/B − 1: d = dA/B − A/B² dB
    variance = 0.25 / 3 / 10**2 + (8.5 / 10**2) ** 2 * 0.25 / 2
    half = t.ppf(0.975, 12) * np.sqrt(variance)
    before, after = np.array([9.0, 11.0]), np.array([8.0, 9.0, 8.5])
    for sign in (1, -1):  # a negative value changes in its own direction
        change = change_of_mean(sign * before, sign * after, noise)
        assert change.value == pytest.approx(-0.15 * sign)
        assert (change.low, change.high) == pytest.approx((-0.15 * sign - half, -0.15 * sign + half))


def test_rankings_have_a_spread_of_their_own():
    """With little noise the interval is Student's over rankings."""
    after = np.array([8.0, 9.0, 8.5, 8.7])
    before, noise = np.array([10.0, 10.0]), TrainingNoise(1e-12, 20, 20)
    change = change_of_mean(before, after, noise, rankings=True)
    sem = after.std(ddof=1) / 2
    assert change.high - change.value == pytest.approx(3.18244630528 * sem / 10, rel=1e-6)
    assert np.isnan(change_of_mean(before, after[:1], noise, rankings=True).low)


def test_one_seed_everywhere_gives_a_value_without_bounds():
    before, after = np.array([4.0]), np.array([3.0])
    change = change_of_mean(before, after, pooled_noise([before, after]))
    assert change.value == pytest.approx(-0.25)
    assert np.isnan([change.low, change.high]).all()


def test_what_does_not_differ_from_zero_changes_in_its_own_unit():
    before, after = np.array([-1.0, 2.0, 0.5]), np.array([3.0, 4.0, 5.0])
    change = change_of_mean(before, after, pooled_noise([before, after]))
    expected = ttest_ind(after, before, equal_var=True).confidence_interval(0.95)
    assert change.value == pytest.approx(3.5)
    assert (change.low, change.high) == pytest.approx((expected.low, expected.high))
    assert change_scale(before, pooled_noise([before, after])) is None
    assert change_scale(np.zeros(1), pooled_noise([])) is None
    assert change_scale(np.zeros(2), TrainingNoise(0.0, 2, 2)) is None


def test_intervals_cover():
    generator, covered = np.random.default_rng(2), []
    for _ in range(800):
        samples = list(generator.normal(np.linspace(1, 0.8, 10)[:, None], 0.2, (10, 2)))
        noise = pooled_noise(samples)
        if change_scale(samples[0], noise) is not None:
            change = change_of_mean(samples[0], samples[-1], noise)
            covered.append(change.low <= -0.2 <= change.high)
    assert len(covered) > 700
    assert 0.92 < np.mean(covered) < 0.98  # four standard errors about 0.95


# --- all of it


def compared(methods, values, *, higher_is_better=True, draws=0, seed=0):
    return compare_removals(methods, values, higher_is_better=higher_is_better, draws=draws, seed=seed)


CREDITS = np.array([4.0, 3, 2, 1, 0, 0, 0, 0, -1, -2])
LEVEL = 20.0


def game(rows, seeds=3, noise=0.01, seed=0):
    """F(S) = 20 + Σ credits, with noise, as text → (R,)."""
    generator = np.random.default_rng(seed)
    return {text(row): LEVEL + row @ CREDITS + generator.normal(0, noise, seeds) for row in rows}


def test_effects_equal_the_planted_ones():
    methods = [contender("ours", CREDITS), contender("backwards", -CREDITS)]
    rows = counterfactual_coalitions(methods, draws=6, seed=1)
    assert rows[0].all()
    assert len({text(row) for row in rows}) == len(rows)
    result = compared(methods, game(rows), draws=6, seed=1)
    full = LEVEL + 7
    planted = {
        ("ours", TEN): -4 / full,
        ("ours", TWENTY): -7 / full,
        ("ours", FORTY): -10 / full,
        ("ours", SIXTY): 3 / full,
        ("backwards", TWENTY): 3 / full,
        ("backwards", SIXTY): -10 / full,
    }
    for (method, action), expected in planted.items():
        effect = result.of(method, action)
        assert effect is not None
        assert effect.change.value == pytest.approx(expected, abs=0.002)
        assert effect.change.low < expected < effect.change.high
    effect = result.of("backwards", TWENTY)
    assert effect.from_first.value == pytest.approx(10 / full, abs=0.002)
    assert effect.from_first.low < 10 / full < effect.from_first.high
    assert result.of("ours", TWENTY).from_first is None
    chance = result.of(RANDOM, FORTY)
    assert chance.coalitions.shape == (6, 10)
    means = [LEVEL + row @ CREDITS for row in chance.coalitions]
    assert chance.after == pytest.approx(means, abs=0.03)


def test_the_difference_of_equal_rankings_is_none_at_all():
    methods = [contender("ours", CREDITS), contender("scaled", 2 * CREDITS)]
    rows = counterfactual_coalitions(methods, draws=0)
    result = compared(methods, game(rows, noise=1.0))
    differences = [effect.from_first for effect in result.effects if effect.method == "scaled"]
    assert len(differences) == 4
    assert all((d.value, d.low, d.high) == (0, 0, 0) for d in differences)


def test_the_noise_before_enters_a_difference_through_the_scale_alone():
    methods = [contender("ours", CREDITS), contender("other", CREDITS[::-1])]
    ours, other = (text(removals(c)[TEN.name]) for c in (CREDITS, CREDITS[::-1]))
    values = {"1" * 10: [10.0, 10.3, 9.7], ours: [5.9, 6.1], other: [9.0, 9.0]}
    result = compared(methods, values | {"0101010101": [0.0, 1e6]})  # another coalition's has no say
    found = result.of("other", TEN).from_first
    noise = (0.18 + 0.02) / 4  # squares over 2 + 1 + 1 degrees of freedom
    assert (result.noise.variance, result.noise.freedom) == (pytest.approx(noise), 4)
    # d ((A − A')/D) = (dA − dA')/D − (A − A') dD/D²
    half = t.ppf(0.975, 4) * np.sqrt(noise * (1 / 2 + 1 / 2) / 10**2 + noise / 3 * (3 / 10**2) ** 2)
    assert (found.value, found.low, found.high) == pytest.approx((0.3, 0.3 - half, 0.3 + half))


def test_what_has_no_retrained_model_is_left_out_and_named():
    methods = [contender("ours", CREDITS), contender("other", CREDITS[::-1])]
    values = game(counterfactual_coalitions(methods, draws=0))
    del values[text(removals(CREDITS)[TEN.name])]
    result = compared(methods, values)
    assert result.missing == ("ours, without the top 10 %",)
    assert result.of("ours", TEN) is None
    assert result.of("other", TEN).from_first is None
    assert "no retrained model for ours, without the top 10 %" in " ".join(
        section_of("counterfactual", {"F": result}).caveats
    )
    with pytest.raises(UserError, match="no model retrained on all"):
        compared(methods, {})
    with pytest.raises(UserError, match="0 of its coalitions"):
        compared(methods, {"1" * 10: [1.0]})


@pytest.mark.parametrize(("better", "sign"), [(True, 1.0), (False, -1.0)])
def test_the_section_tells_what_happened(better, sign):
    """With −F where lower is better, the same credits are as good and every word but the direction is the same."""
    methods = [contender("ours", CREDITS), contender("backwards", -CREDITS)]
    rows = counterfactual_coalitions(methods, draws=8)
    values = {key: 100 + sign * (value - 27) for key, value in game(rows).items()}
    result = compared(methods, values, higher_is_better=better, draws=8)
    photograph = same_noises("p", "t", {"a": np.zeros((1, 8, 8, 3), np.uint8)})
    section = section_of("counterfactual", {"Quality": result}, [photograph])
    summary = " ".join(section.summary)
    verb = "falls" if better else "rises"
    assert f"Quality: retrained without the top 20 % (2 of 10) by ours, F {verb} by 7.0 % (" in summary
    assert "; by random rankings, F " in summary
    assert "Quality, without the top 20 %, weaker than ours: backwards." in summary
    assert "Quality: retrained on only the top 60 % (6 of 10) by ours, F " in summary
    assert section.photographs == (photograph,)
    table = section.tables[0]
    assert {len(row) for row in table.rows} == {len(table.columns)}
    found = {(row[1], row[2]): row for row in table.rows}
    assert found["without the top 20 %", "ours"][3].value == pytest.approx(-7 * sign, abs=0.1)
    assert found["without the top 20 %", "backwards"][4].value == pytest.approx(10 * sign, abs=0.1)
    assert found["without the top 20 %", "backwards"][5] == "weaker"
    assert found["only the top 60 %", "backwards"][5] == "weaker"
    assert found["only the top 60 %", RANDOM][5] == "weaker"
    assert found["without the top 20 %", "ours"][4:] == (None, None)
    other = compare_removals(methods[::-1], values, higher_is_better=better, draws=0)
    told = section_of("counterfactual", {"Quality": other})
    assert {row[5] for row in told.tables[0].rows if row[2] == "ours"} == {"stronger"}
    assert "Quality, without the top 20 %, stronger: ours." in told.summary
    values_table = {(row[1], row[2]): row for row in section.tables[1].rows}
    assert values_table["without the top 20 %", "ours"][3] == 8
    assert values_table["without the top 20 %", "ours"][4] == pytest.approx(100, abs=0.05)
    assert values_table["without the top 20 %", "ours"][6] == pytest.approx(100 - 7 * sign, abs=0.05)
    assert "backwards" in section.figures[0].svg


def test_the_summary_gives_the_interval_in_the_direction_told():
    methods = [contender("ours", CREDITS)]
    key = text(removals(CREDITS)[TWENTY.name])
    after = np.array([8.0, 9.0, 8.5, 8.7])
    noise = 4 * after.var() / 5
    for values, verb in ((after, "falls"), (20 - after, "rises")):
        half = 10 * t.ppf(0.975, 5) * np.sqrt(noise * (1 / 4 + (values.mean() / 10) ** 2 / 3))
        given = {"1" * 10: [10.0, 10.0, 10.0], key: values}
        section = section_of("counterfactual", {"F": compared(methods, given)})
        assert f"F {verb} by 14.5 % ({14.5 - half:.1f} to {14.5 + half:.1f})." in section.summary[0]


def test_a_constant_property_and_one_about_zero_make_a_section():
    methods = [contender("ours", CREDITS), contender("other", CREDITS[::-1])]
    rows = counterfactual_coalitions(methods, draws=2)
    constant = compared(methods, {text(r): [5.0, 5.0] for r in rows}, draws=2)
    zero = compared(methods, {text(r): [-1.0, 1.0] for r in rows}, draws=2)
    single = compared(methods, {text(r): [float(r.sum())] for r in rows}, draws=2)
    section = section_of("counterfactual", {"Constant": constant, "Zero": zero, "Single": single})
    summary = " ".join(section.summary)
    assert "Constant: retrained without the top 20 % (2 of 10) by ours, F does not change" in summary
    assert "Single: retrained without the top 20 % (2 of 10) by ours, F falls by 20.0 % (interval not known)" in summary
    names = ["counterfactual", "counterfactual-absolute", "counterfactual-values"]
    assert [table.name for table in section.tables] == names
    assert {row[0] for row in section.tables[1].rows} == {"Zero"}
    assert any("not in per cent for Zero" in caveat for caveat in section.caveats)
    assert any("one seed" in caveat for caveat in section.caveats)


# --- who is compared


def test_the_best_of_each_category():
    found = [
        contender("ours", [1, 2]),
        contender("pixel", [1, 2], "similarity"),
        contender("clip", [1, 2], "similarity"),
        contender("trak", [1, 2], "gradients"),
        contender("d-trak", [1, 2], "gradients"),
    ]
    names = [c.name for c in best_of_categories(found, {"pixel": 0.1, "clip": 0.3, "trak": np.nan, "d-trak": -0.2})]
    assert names == ["ours", "clip", "d-trak"]
    assert [c.name for c in best_of_categories(found, {})] == ["ours", "pixel", "trak"]
