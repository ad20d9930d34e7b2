import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffcredit.credit.planning import Costs, Noise, best_split, pilot_noise, signal_to_noise, split_of
from diffcredit.errors import UserError

POSITIVE = st.floats(0.01, 100)


def searched(noise, costs, budget, least_images=1, least_evaluations=1):
    """The least (A + b/N)/M over all whole N, M as many as the budget buys, not rounded."""
    images = np.arange(least_images, int((budget / least_evaluations - costs.training) / costs.image) + 2)
    evaluations = budget / (costs.training + costs.image * images)
    allowed = evaluations >= least_evaluations * (1 - 1e-12)
    variance = (noise.between + noise.per_image / images) / evaluations
    return images[allowed][variance[allowed].argmin()], variance[allowed].min()


@settings(max_examples=200, deadline=None)
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


def test_a_simulated_budget_is_best_spent_as_told():
    """The mean of M noisy values is the simplest credit: its simulated variance is least near the advised split."""
    noise, costs, budget = Noise(0.5, 30.0), Costs(20.0, 0.5), 4000.0
    split = best_split(noise, costs, budget)
    rng = np.random.default_rng(1)

    def simulated(images):
        evaluations = int(budget / costs.evaluation(images))
        values = rng.normal(scale=math.sqrt(0.5), size=(4000, evaluations))
        values += rng.normal(scale=math.sqrt(30.0 / images), size=values.shape)
        return values.mean(axis=1).var()

    advised = simulated(split.images)
    assert advised == pytest.approx(split.variance, rel=0.1)
    assert simulated(split.images // 8) > 1.2 * advised
    assert simulated(split.images * 8) > 1.2 * advised


def test_noise_below_the_images_own_is_not_negative():
    noise = pilot_noise(0.1, [0.5, 0.5], 16)
    assert noise.between == 0
    assert noise.per_image == 16 * 0.25


def test_signal_to_noise_is_that_of_simulated_values():
    """Values of coalitions of one size: the part that credits of spread τ explain, over the noise."""
    rng = np.random.default_rng(0)
    n, tau, sigma = 12, 0.5, 2.0
    sizes = rng.integers(1, n, size=400)
    explained = []
    for size in sizes:
        credits = tau * rng.standard_normal((400, n))
        explained.append(((credits[:, :size] - credits.mean(axis=1, keepdims=True)).sum(axis=1)).var())
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
