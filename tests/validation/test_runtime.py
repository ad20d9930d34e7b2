from dataclasses import replace

import numpy as np
import pytest
from tests.validation.made_up import recipe_game, section_of, uniform

from diffcredit.errors import UserError
from diffcredit.testing.games import learning
from diffcredit.validation.statistics.runtime import compare_runtimes

N, M = 8, 30


def spent(recipe, method, steps, training, sampling=6.0, m=M):
    return recipe_game(
        learning(N), uniform(N, m), recipe=recipe, method=method, steps=steps, training=training, sampling=sampling
    )


RETRAINING = spent("from_scratch", "from_scratch", 20000, 84.0)


def test_means_spreads_and_ratios():
    generator = np.random.default_rng(0)
    training, sampling = generator.gamma(5, size=M), generator.gamma(3, size=M)
    found = compare_runtimes([spent("fast", "lora", 100, training, sampling)], RETRAINING)
    first, fast = found.recipes
    assert (first.recipe, first.training.mean, first.sampling.mean, first.both.mean) == ("from_scratch", 84, 6, 90)
    assert first.speed_up == pytest.approx(1)
    assert fast.training.mean == pytest.approx(sum(training) / M)
    assert fast.sampling.deviation == pytest.approx((sum((sampling - sampling.mean()) ** 2) / (M - 1)) ** 0.5)
    assert fast.both.deviation == pytest.approx(np.std(training + sampling, ddof=1))
    assert fast.speed_up == pytest.approx(90 / (training + sampling).mean())


def test_growth_is_the_least_squares_line_over_evaluations():
    generator = np.random.default_rng(1)
    seconds = {k: 3 + 0.02 * k + generator.normal(size=m) for k, m in ((100, 10), (200, 30), (700, 20))}
    games = [spent(f"tuned-{k}", "sparsified", k, each, m=len(each)) for k, each in seconds.items()]
    x, y = np.repeat([100, 200, 700], [10, 30, 20]), np.concatenate(list(seconds.values()))
    slope, intercept = np.polyfit(x, y, 1)
    growth = compare_runtimes(games, RETRAINING).growths[0]
    assert (growth.slope, growth.intercept) == pytest.approx((slope, intercept))
    assert growth.r_squared == pytest.approx(1 - ((y - intercept - slope * x) ** 2).sum() / ((y - y.mean()) ** 2).sum())


def test_one_step_count_tells_no_growth():
    games = [spent("a", "sparsified", 100, 3.0), spent("b", "sparsified", 100, 4.0)]
    assert compare_runtimes(games, RETRAINING).growths == ()
    constant = [spent("a", "sparsified", 100, 3.0), spent("b", "sparsified", 200, 3.0)]
    growth = compare_runtimes(constant, RETRAINING).growths[0]
    assert growth.slope == pytest.approx(0)
    assert np.isnan(growth.r_squared)


def test_recipes_stand_by_method_and_steps_after_the_retraining():
    games = [spent("b", "sparsified", 500, 3.0), spent("c", "lora", 10, 3.0), spent("a", "sparsified", 100, 3.0)]
    recipes = compare_runtimes([games[0], RETRAINING, *games[1:]], RETRAINING).recipes
    assert [each.recipe for each in recipes] == ["from_scratch", "a", "b", "c"]


def test_seconds_that_are_not_known_are_left_out():
    training = np.full(M, 4.0)
    training[:10] = np.nan
    part, none = compare_runtimes([spent("a", "x", 1, training), spent("b", "x", 2, np.nan)], RETRAINING).recipes[1:]
    assert (len(part.seconds), part.training.mean, part.both.mean) == (20, 4, 10)
    assert len(none.seconds) == 0
    assert np.isnan([none.training.mean, none.speed_up]).all()
    with pytest.raises(UserError, match="no seconds of 'from_scratch' are known"):
        compare_runtimes([], spent("from_scratch", "from_scratch", 1, np.nan))


def test_the_section_is_in_seconds_or_minutes():
    fast = spent("fast", "sparsified", 100, 3.0)
    table = section_of("runtime", compare_runtimes([fast], RETRAINING)).tables[0]
    assert table.columns[4] == "training (s)"
    assert [row[4] for row in table.rows] == pytest.approx([84, 3])
    slow = replace(RETRAINING, training_seconds=np.full(M, 4644.0), sampling_seconds=np.full(M, 1248.0))
    section = section_of("runtime", compare_runtimes([fast], slow))
    assert section.tables[0].columns[4] == "training (min)"
    assert [row[4] for row in section.tables[0].rows] == pytest.approx([77.4, 0.05])
    assert section.summary[0] == "from_scratch: 77.4 min of training and 20.8 min of sampling a coalition."
    assert "655 times as fast as from_scratch" in section.summary[1]
    assert len(set(section.tables[0].columns)) == len(section.tables[0].columns)
    assert all(len(row) == len(section.tables[0].columns) for row in section.tables[0].rows)


def test_the_median_is_told_and_who_has_a_mean_far_above_it():
    uneven = replace(spent("a", "x", 1, 3.0), training_seconds=np.array([2.0] * 9 + [40.0]))
    uneven = replace(uneven, sampling_seconds=np.full(10, 1.0), values=np.zeros(10))
    result = compare_runtimes([uneven, spent("b", "x", 2, 3.0)], RETRAINING)
    section = section_of("runtime", result)
    table = section.tables[0]
    medians = {row[0]: row[table.columns.index("median of both")] for row in table.rows}
    assert medians["a"] == pytest.approx(3.0)
    assert medians["b"] == pytest.approx(result.recipes[2].both.mean)
    (caveat,) = section.caveats
    assert "For a, a few" in caveat


def test_the_section_warns_where_devices_differ():
    def section_on(devices):
        games = [spent("a", "x", 1, 3.0), spent("b", "x", 2, 3.0)]
        return section_of("runtime", compare_runtimes(games, RETRAINING, devices))

    section = section_on({"from_scratch": ["H200"], "a": ["H200"], "b": ["H200", "CPU"]})
    assert len(section.caveats) == 2
    assert all(caveat.startswith("b ran on ") for caveat in section.caveats)
    other = section_on({"from_scratch": ["H200"], "a": ["A100", "A100"]})
    assert other.caveats == ("a ran on A100, from_scratch on H200: their seconds do not compare.",)
    assert section_on({}).caveats == ()
    assert [figure.name for figure in section.figures] == ["runtimes", "training-by-steps"]
