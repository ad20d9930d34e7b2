"""The pilot's statistics against closed forms, simulation, and the estimator that it foresees."""

import math

import numpy as np
import pytest
from scipy import stats

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.credit.planning import evaluations_needed, ratio_interval, read_pilot, variance_components
from diffcredit.errors import UserError


def drawn(rng, between, within, sizes):
    return [rng.normal(0, between) + rng.normal(0, within, size) for size in sizes]


def test_equal_replicates_have_the_textbooks_numbers():
    groups = np.array([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0], [0.0, 1.0, 2.0], [5.0, 5.0, 8.0]])
    told = read_pilot(groups, [0.5, 0.1])
    f, _ = stats.f_oneway(*groups)
    within = groups.var(axis=1, ddof=1).mean()
    between = groups.mean(axis=1).var(ddof=1) - within / 3
    assert told.within == pytest.approx(math.sqrt(within))
    assert told.between == pytest.approx(math.sqrt(between))
    assert told.ratio == pytest.approx(between / within)
    assert told.images == pytest.approx(math.sqrt((0.25 + 0.01) / 2))
    assert told.low == pytest.approx((f / stats.f.ppf(0.95, 3, 8) - 1) / 3)
    assert told.high == pytest.approx((f / stats.f.ppf(0.05, 3, 8) - 1) / 3)
    assert (told.coalitions, told.evaluations) == (4, 12)


@pytest.mark.parametrize("sizes", [[3] * 4, [2, 5, 1, 3, 4]])
@pytest.mark.parametrize("between", [0.0, 0.7, 2.0])
def test_components_are_unbiased_and_the_interval_covers(sizes, between):
    rng, within, rounds = np.random.default_rng(1), 1.5, 300
    estimates, covered = [], 0
    for _ in range(rounds):
        groups = drawn(rng, between, within, sizes)
        estimates.append(variance_components(groups))
        low, high = ratio_interval(groups, 0.9)
        covered += low <= between**2 / within**2 <= high
    errors = np.std(estimates, axis=0) / math.sqrt(rounds)
    np.testing.assert_array_less(np.abs(np.mean(estimates, axis=0) - [between**2, within**2]), 4 * errors)
    # at 0 the lower end, cut off there, never misses
    nominal = 0.9 if between else 0.95
    assert covered / rounds == pytest.approx(nominal, abs=4 * math.sqrt(0.09 / rounds))


def test_no_noise_and_no_difference():
    assert read_pilot([[1.0, 1.0], [2.0, 2.0]]).ratio == math.inf
    same = read_pilot([[1.0, 1.0], [1.0, 1.0]])
    assert (same.ratio, same.low, same.high) == (0.0, 0.0, math.inf)
    assert read_pilot([[0.0, 9.0], [0.1, 9.0]]).between == 0.0


@pytest.mark.parametrize("groups", [[], [[1.0, 2.0]], [[1.0], [2.0], [3.0]], [[1.0, 2.0], []]])
def test_too_little_is_refused(groups):
    with pytest.raises(UserError, match="at least two coalitions are needed"):
        read_pilot(groups)


def test_constants_of_the_designs():
    """The noise constants M·Var/σ²: 6(n−1)/(n+1) for uniform sizes, 2H for kernel sizes, 4 for coins."""
    n, size, ratio = 20, 10, 0.5
    expected = math.tanh(math.atanh(0.9) + stats.norm.ppf(0.85) / math.sqrt(n - 3)) ** 2
    odds = expected / (1 - expected) * (size * (n - size) / n) / ratio
    harmonic = sum(1 / s for s in range(1, n))
    for design, constant in (("uniform", 6 * (n - 1) / (n + 1)), ("kernel", 2 * harmonic), ("half", 4.0)):
        # coins leave out the empty and the full coalition, 2 of 2²⁰
        assert evaluations_needed(ratio, size, n, design, 0.9) == pytest.approx(constant * odds, rel=1e-4)
    assert evaluations_needed(0.0, size, n, "uniform", 0.9) == math.inf


def test_so_many_evaluations_do_reach_the_correlation():
    """Additive games with credits of known variance: the foreseen number, put to the test with the estimator itself."""
    n, ratio, target, rounds = 20, 1.0, 0.9, 15
    count = round(evaluations_needed(ratio, n // 2, n, "uniform", target))
    rng = np.random.default_rng(0)
    reached = 0
    for seed in range(rounds):
        credit = rng.normal(0, math.sqrt(4 * ratio / n), n)  # σ_b² = τ² n/4 = ratio, σ_w² = 1
        coalitions = make_design("uniform", seed).draw(n, 0, count)
        values = coalitions @ credit + rng.normal(size=count)
        found = estimate(coalitions, values, empty=0.0, full=float(credit.sum()))
        reached += np.corrcoef(found.values, credit)[0, 1] >= target
    assert reached / rounds > 0.6  # 85 % but for the estimator's own shape parameters, and 30 rounds
