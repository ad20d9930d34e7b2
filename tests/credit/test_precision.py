import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import norm

from credit.made_up_looks import credits, look
from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.credit.precision import Correlation, TopK, Width, expected_overlap


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


@pytest.mark.parametrize(("gap", "error"), [(1.0, 1.0), (1.0, 0.3), (0.1, 2.0)])
def test_the_better_of_two(gap, error):
    """Of two with a difference d, the better is the better with probability Φ(d / (σ√2))."""
    expected = norm.cdf(gap / (error * math.sqrt(2)))
    assert expected_overlap(np.array([0.0, gap]), np.full(2, error), 1, True) == pytest.approx(expected, abs=0.03)


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


@pytest.mark.slow
def test_stopping_by_correlation_meets_its_target():
    """Additive games with noise, looked at every 40 evaluations: where the rule stops, the credits correlate with the
    true ones about as well as asked for, and where it was foreseen from half-way."""
    n, target, realised, ratios = 12, 0.9, [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        true = rng.normal(size=n)
        coalitions = make_design("uniform", seed).draw(n, 0, 1200)
        values = coalitions @ true + rng.normal(scale=3.0, size=len(coalitions))
        looks, foreseen = [], {}
        for end in range(40, 1201, 40):
            estimated = estimate(coalitions[:end], values[:end], empty=0.0, full=float(true.sum()))
            looks.append(look(end, {"x": estimated}))
            foreseen[end] = Correlation(target).status(looks).evaluations
            if Correlation(target).reached(looks):
                break
        realised.append(np.corrcoef(true, estimated.values)[0, 1])
        if end >= 160 and (half := foreseen[40 * (end // 80)]):
            ratios.append(half / end)
    assert np.median(realised) > target - 0.03
    assert np.mean(np.array(realised) > target - 0.06) > 0.8
    assert 0.4 < np.exp(np.mean(np.log(ratios))) < 2.5
