"""Budgets and the pilot's statistics against closed forms, search, simulation, and the estimator itself."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.credit.planning import (
    Costs,
    Noise,
    best_split,
    evaluations_needed,
    pilot_noise,
    ratio_interval,
    read_pilot,
    signal_to_noise,
    split_of,
    variance_components,
)
from diffcredit.errors import UserError

POSITIVE = st.floats(0.01, 100)


def searched(noise, costs, budget, least_images=1, least_evaluations=1):
    """The least (A + b/N)/M over all whole N, M as many as the budget buys, not rounded."""
    images = np.arange(least_images, int((budget / least_evaluations - costs.training) / costs.image) + 2)
    evaluations = budget / (costs.training + costs.image * images)
    allowed = evaluations >= least_evaluations * (1 - 1e-12)
    variance = (noise.between + noise.per_image / images) / evaluations
    return images[allowed][variance[allowed].argmin()], variance[allowed].min()


@settings(max_examples=60, deadline=None)
@given(POSITIVE, POSITIVE, POSITIVE, st.floats(0.005, 1), st.integers(1, 30), st.integers(1, 40))
def test_no_other_split_is_better(between, per_image, training, image, least_images, least_evaluations):
    noise, costs = Noise(between, 50 * per_image), Costs(training, image)
    budget = 100 * costs.evaluation(least_images) + 40
    split = best_split(noise, costs, budget, least_images=least_images, least_evaluations=least_evaluations)
    assert split.images >= least_images
    assert split.evaluations >= least_evaluations
    assert split.evaluations * costs.evaluation(split.images) <= budget * (1 + 1e-9)
    assert split.variance == pytest.approx(noise.variance(split.images) / split.evaluations)
    _, best = searched(noise, costs, budget, least_images, least_evaluations)
    # rounding M down costs less than one evaluation in M
    assert best <= split.variance * (1 + 1e-9)
    assert split.variance <= best * (1 + 1 / split.evaluations) * (1 + 1e-3)


def test_the_closed_form():
    """b·c_train·k / (A·c_gen) = 400 · 100 / (1 · 1) = 200², and then 30,000 / (100 + 200) = 100."""
    split = best_split(Noise(1.0, 400.0), Costs(100.0, 1.0), 30_000)
    assert (split.images, split.evaluations) == (200, 100)
    assert split.variance == pytest.approx((1 + 400 / 200) / 100)


def test_the_ends_of_the_range():
    costs = Costs(10.0, 1.0)
    assert best_split(Noise(1.0, 0.0), costs, 1000, least_images=8).images == 8  # images add no noise
    many = best_split(Noise(0.0, 1.0), costs, 1000, least_evaluations=20)  # trainings add none
    assert (many.images, many.evaluations) == (40, 20)
    assert best_split(Noise(0.0, 0.0), costs, 1000).variance == 0


def test_a_budget_too_small_says_what_is_needed():
    with pytest.raises(UserError, match="budget: 100; 20 evaluations of 8 images cost 360"):
        best_split(Noise(1.0, 1.0), Costs(10.0, 1.0), 100, least_images=8, least_evaluations=20)
    with pytest.raises(UserError, match="one evaluation of 8 images costs 18"):
        split_of(Noise(1.0, 1.0), Costs(10.0, 1.0), 5, 8)


def test_a_pilot_tells_the_noises_apart():
    """Values = training noise + the mean of N draws: A and b are those of the simulation."""
    rng = np.random.default_rng(0)
    m, images, between, per_image = 4000, 64, 0.3, 25.0
    drawn = rng.normal(scale=math.sqrt(per_image), size=(m, images))
    values = rng.normal(scale=math.sqrt(between), size=m) + drawn.mean(axis=1)
    errors = drawn.std(axis=1) / math.sqrt(images)
    noise = pilot_noise(float(values.std()), errors, images)
    assert noise.per_image == pytest.approx(per_image, rel=0.05)
    assert noise.between == pytest.approx(between, rel=0.15)
    assert pilot_noise(0.1, [0.5, 0.5], 16) == Noise(0.0, 16 * 0.25)  # never negative


def test_signal_to_noise_is_that_of_simulated_values():
    """Values of coalitions of one size: the part that credits of spread τ explain, over the noise."""
    rng = np.random.default_rng(0)
    n, tau, sigma = 12, 0.5, 2.0
    sizes = rng.integers(1, n, size=400)
    explained = []
    for size in sizes:
        credits = tau * rng.standard_normal((400, n))
        explained.append((credits[:, :size] - credits.mean(axis=1, keepdims=True)).sum(axis=1).var())
    expected = np.mean(explained) / sigma**2
    assert signal_to_noise(tau, sigma, sizes, n) == pytest.approx(expected, rel=0.05)
    uniform = np.arange(1, n)
    assert signal_to_noise(1.0, 1.0, uniform, n) == pytest.approx((n + 1) / 6)
    assert signal_to_noise(1.0, 0.0, uniform, n) == math.inf
    assert signal_to_noise(0.0, 0.0, uniform, n) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Costs(0, 1),
        lambda: Costs(1, -1),
        lambda: Noise(-1, 1),
        lambda: Noise(1, math.nan),
        lambda: best_split(Noise(1, 1), Costs(1, 1), 0),
        lambda: best_split(Noise(1, 1), Costs(1, 1), 10, least_images=0),
        lambda: pilot_noise(1.0, [], 10),
        lambda: pilot_noise(1.0, [-0.1], 10),
        lambda: pilot_noise(1.0, [math.inf], 10),
        lambda: pilot_noise(1.0, [0.1], 0),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(UserError):
        make()


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


@pytest.mark.parametrize(("sizes", "between"), [([3] * 4, 0.7), ([2, 5, 1, 3, 4], 0.0), ([2, 5, 1, 3, 4], 2.0)])
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
    n, ratio, target, rounds = 12, 1.0, 0.9, 12
    count = round(evaluations_needed(ratio, n // 2, n, "uniform", target))
    rng = np.random.default_rng(0)
    reached = 0
    for seed in range(rounds):
        credit = rng.normal(0, math.sqrt(4 * ratio / n), n)  # σ_b² = τ² n/4 = ratio, σ_w² = 1
        coalitions = make_design("uniform", seed).draw(n, 0, count)
        values = coalitions @ credit + rng.normal(size=count)
        found = estimate(coalitions, values, empty=0.0, full=float(credit.sum()))
        reached += np.corrcoef(found.values, credit)[0, 1] >= target
    assert reached / rounds > 0.6  # 85 % but for the estimator's own shape parameters
