"""Stopping rules on what is spent and on how well the credits are known."""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

from diffcredit.credit.precision import Correlation, TopK, Width, expected_overlap
from diffcredit.credit.stopping import AllOf, AnyOf, Evaluations, Look, Money, Time
from diffcredit.errors import UserError


def credits(values=(0.0, 1.0), error=1.0, width=1.0, correlation=0.5):
    """What stopping rules read of credits, with one standard error and one width of interval for all, or one each."""
    values = np.asarray(values, dtype=float)
    half = np.broadcast_to(np.asarray(width, dtype=float) / 2, values.shape)
    errors = np.broadcast_to(np.asarray(error, dtype=float), values.shape)
    known = {"predicted_correlation": correlation, "assured_correlation": correlation}
    return SimpleNamespace(
        values=values, low=values - half, high=values + half, standard_error=errors, diagnostics=known
    )


def look(evaluations, credits=None, *, worker=0.0, elapsed=0.0, lower=(), properties=()):
    """A look; properties that have no credits are named in ``properties``, those where lower is better in ``lower``."""
    names = [*(credits or {}), *properties]
    return Look(evaluations, worker, elapsed, credits, {name: name not in lower for name in names})


def test_evaluations():
    rule = Evaluations(100)
    assert [rule.reached([look(count)]) for count in (99, 100, 101)] == [False, True, True]
    assert not rule.reached([])
    assert rule.status([]).evaluations == rule.status([look(40)]).evaluations == 100
    assert rule.max_evaluations() == 100
    assert rule.status([look(40)]).now == "40"


@pytest.mark.parametrize("rule", [Time(2), Money(amount=10, per_hour=5)])
def test_clocks(rule):
    """Both are two hours: of the clock on the wall, and of workers at 5 an hour."""
    assert not rule.reached([])
    assert not rule.reached([look(10, worker=7199, elapsed=7199)])
    assert rule.reached([look(10, worker=7200, elapsed=7200)])
    assert rule.max_evaluations() is None
    assert rule.bounded()


def test_clocks_are_told_apart():
    four_workers = [look(10, worker=4 * 3600, elapsed=3600)]
    assert not Time(2).reached(four_workers)
    assert Money(amount=10, per_hour=5).reached(four_workers)
    assert Time(2).status(four_workers).now == "1 hours"
    assert Money(100, 5).status(four_workers).now == "20.00"


def test_clocks_foresee_by_the_rate_so_far():
    """30 evaluations in half an hour, each 2 minutes of a worker: 6 hours hold 360, 100 coins buy 1,500 minutes."""
    looks = [look(30, worker=3600, elapsed=1800)]
    assert Time(6).status(looks).evaluations == 360
    assert Money(100, per_hour=4).status(looks).evaluations == 25 * 60 / 2
    assert Time(6).status([]).evaluations is None
    assert Time(6).status([look(0, worker=10, elapsed=10)]).evaluations is None
    assert Time(0.1).status(looks).evaluations == 30  # reached


@pytest.mark.parametrize("states", itertools.product([False, True], repeat=3))
def test_combinations_are_logic(states):
    a, b, c = (Evaluations(10 if state else 30) for state in states)
    looks = [look(20)]
    assert (a & b).reached(looks) == (states[0] and states[1])
    assert (a | b).reached(looks) == (states[0] or states[1])
    assert (a & b | c).reached(looks) == ((states[0] and states[1]) or states[2])
    assert (a & (b | c)).reached(looks) == (states[0] and (states[1] or states[2]))


def test_combinations_foresee_the_first_or_the_last():
    looks = [look(30, {"x": credits(correlation=0.0)}, elapsed=1800)]
    assert (Evaluations(100) | Time(6)).status(looks).evaluations == 100
    assert (Evaluations(100) & Time(6)).status(looks).evaluations == 360
    never = Correlation(0.9)  # from a correlation of zero, nobody can tell
    assert never.status(looks).evaluations is None
    assert (Evaluations(100) | never).status(looks).evaluations == 100
    assert (Evaluations(100) & never).status(looks).evaluations is None
    assert (never | never).status(looks).evaluations is None


def test_what_is_bounded():
    bounded, open_ended = (Evaluations(9), Time(1), Money(1, 1)), (Correlation(0.9), Width(1), TopK(1, 0.9))
    for rule in bounded:
        assert rule.bounded()
    for rule, limit in itertools.product(open_ended, bounded):
        assert not rule.bounded()
        assert (rule | limit).bounded()
        assert not (rule & limit).bounded()
        assert ((rule & limit) | limit).bounded()


def test_the_most_evaluations():
    many, few, clock = Evaluations(500), Evaluations(100), Time(1)
    assert (many | few).max_evaluations() == 100
    assert (many & few).max_evaluations() == 500
    assert (many | clock).max_evaluations() == 500
    assert (many & clock).max_evaluations() is None
    assert ((many & clock) | few).max_evaluations() == 100


def test_the_reason_names_what_was_reached():
    rule = AnyOf((Evaluations(500), Time(9), AllOf((Width(2.0), Correlation(0.8)))))
    good = {"x": credits(width=1.5, correlation=0.81)}
    looks = [look(40, good, elapsed=10), look(80, good, elapsed=20)]
    assert rule.status(looks).reason() == "width ≤ 2, now 1.5 and correlation ≥ 0.8, 85 % sure, now 0.81"
    assert rule.status([look(500)]).reason() == "500 evaluations"
    assert [part.reached for part in rule.status(looks).parts] == [False, False, True]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Evaluations(0),
        lambda: Time(0),
        lambda: Time(math.inf),
        lambda: Money(-1, 1),
        lambda: Money(1, 0),
        lambda: Correlation(1.0),
        lambda: Correlation(0.0),
        lambda: Width(0),
        lambda: Width(math.nan),
        lambda: TopK(0, 0.9),
        lambda: TopK(1, 1.1),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(UserError, match="accepted"):
        make()


def correlations(*sequence, spacing=40):
    return [look(spacing * (i + 1), rho and {"x": credits(correlation=rho)}) for i, rho in enumerate(sequence)]


@pytest.mark.parametrize(
    ("sequence", "reached"),
    [
        ([0.95], False),
        ([0.95, 0.95], True),
        ([0.9, 0.95], True),
        ([0.95, 0.89], False),
        ([0.95, 0.89, 0.95], False),
        ([0.1, 0.95, 0.99], True),
        ([0.95, 0.95, None], True),  # a look without credits, at the clocks alone
        ([0.95, None], False),
        ([], False),
    ],
)
def test_the_correlation_must_hold_twice_in_a_row(sequence, reached):
    assert Correlation(0.9).reached(correlations(*sequence)) is reached


def test_every_property_counts_unless_one_is_named():
    both = {"sharp": credits(correlation=0.99, width=0.1), "dull": credits(correlation=0.5, width=9.0)}
    looks = [look(40, both), look(80, both)]
    for all_of_them, named in (
        (Correlation(0.9), Correlation(0.9, property="sharp")),
        (Width(1.0), Width(1.0, property="sharp")),
    ):
        assert not all_of_them.reached(looks)
        assert named.reached(looks)
        assert not type(named)(named.target, property="dull").reached(looks)
    assert Correlation(0.9).status(looks).now == "0.5 (dull)"
    assert Width(1.0).status(looks).now == "9 (dull)"
    assert Correlation(0.9, property="sharp").status(looks).now == "0.99"


def test_a_property_without_credits_is_not_settled():
    looks = [look(count, {"x": credits(correlation=0.99, width=0.1)}, properties=("broken",)) for count in (40, 80)]
    for rule in (Correlation(0.9), Width(1.0), TopK(1, 0.1)):
        assert not rule.reached(looks)
        assert rule.status(looks).evaluations is None
        assert rule.status(looks).now == "not known for broken"
        assert dataclasses.replace(rule, property="x").reached(looks)


def test_the_width_is_the_widest():
    widths = credits(values=[0.0, 1.0, 2.0], width=[0.1, 0.5, 0.3])
    assert Width(0.5).reached([look(40, {"x": widths})])
    assert not Width(0.4999).reached([look(40, {"x": widths})])
    unknown = credits(values=[0.0, 1.0], width=math.inf)
    assert not Width(1e9).reached([look(40, {"x": unknown})])
    assert Width(1e9).status([look(40, {"x": unknown})]).evaluations is None


def test_widths_that_fall_with_the_root_are_foreseen():
    """Of widths 12/√M, the width 0.5 comes at M = 576."""
    for seen in (80, 120, 400):
        looks = [look(count, {"x": credits(width=12 / math.sqrt(count))}) for count in (seen - 40, seen)]
        assert Width(0.5).status(looks).evaluations == pytest.approx(576, abs=1)


def test_correlations_of_a_shrunken_mean_are_foreseen():
    """Shrunken means of M draws with noise σ about credits of spread τ: ρ² = Mτ²/(Mτ² + σ²), which the formula must
    turn around; ρ is measured on simulated credits, not taken from the formula."""
    rng = np.random.default_rng(0)
    tau, sigma, n = 1.0, 10.0, 200_000
    true = tau * rng.standard_normal(n)

    def correlation(m):
        return float(np.corrcoef(true, true + sigma / math.sqrt(m) * rng.standard_normal(n))[0, 1])

    looks = [look(40, {"x": credits(correlation=correlation(40))})]
    foreseen = Correlation(0.95).status(looks).evaluations
    assert correlation(foreseen) == pytest.approx(0.95, abs=0.003)
    assert foreseen == pytest.approx(sigma**2 / tau**2 * 0.95**2 / (1 - 0.95**2), rel=0.03)


def test_what_a_rule_still_lacks_is_at_least_the_next_looks():
    assert Correlation(0.9).status(correlations(0.5, 0.95)).evaluations == 120  # one more such look
    assert Correlation(0.9).status(correlations(0.95)).evaluations == 80
    assert Correlation(0.9).status(correlations(0.95, 0.899)).evaluations == 160  # two looks in a row
    assert Correlation(0.9).status(correlations(0.95, 0.95)).evaluations == 80  # reached
    assert Correlation(0.9).status([]).evaluations is None
    assert Width(1.0).status([look(40, {"x": credits(width=1.001)})]).evaluations == 80


def test_the_overlap_is_that_of_sorting_draws_one_by_one():
    rng = np.random.default_rng(3)
    values, errors, k = rng.normal(size=8), rng.uniform(0.1, 2, size=8), 3
    for higher in (True, False):
        top = set(sorted(range(8), key=lambda i: values[i], reverse=higher)[:k])
        shared = 0
        for _ in range(4_000):
            drawn = rng.normal(values, errors)
            shared += len(top & set(sorted(range(8), key=lambda i: drawn[i], reverse=higher)[:k]))
        assert expected_overlap(values, errors, k, higher) == pytest.approx(shared / 4_000 / k, abs=0.03)


def test_where_lower_is_better_the_lowest_are_the_top():
    values, errors = [0.0, 0.01, 0.02, 5.0], [1.0, 1.0, 1.0, 0.01]  # one stands out at the upper end only
    up = [look(count, {"x": credits(values, errors)}) for count in (40, 80)]
    down = [look(count, {"x": credits(values, errors)}, lower=("x",)) for count in (40, 80)]
    assert TopK(1, 0.9).reached(up)
    assert not TopK(1, 0.9).reached(down)
    assert not TopK(1, 0.9).reached(up[:1])  # twice in a row


def test_the_top_is_foreseen():
    """Two with a difference d are told apart with probability o once 2σ² = (d / Φ⁻¹(o))², and σ² falls as 1/M."""
    looks = [look(100, {"x": credits([0.0, 0.5], error=1.0)})]
    expected = 100 * 2 * (norm.ppf(0.95) / 0.5) ** 2
    assert TopK(1, 0.95).status(looks).evaluations == pytest.approx(expected, rel=0.12)
    ties = [look(100, {"x": credits([1.0, 1.0, 1.0 + 1e-12], error=1.0)})]
    assert TopK(1, 0.95).status(ties).evaluations is None


def test_an_unknown_standard_error_settles_nothing():
    looks = [look(count, {"x": credits([0.0, 9.0], error=[math.nan, 1.0])}) for count in (40, 80)]
    assert not TopK(1, 0.5).reached(looks)
    assert TopK(1, 0.5).status(looks).evaluations is None
