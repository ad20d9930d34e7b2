import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import chi, norm
from scipy.stats import t as student

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.credit.intervals import rank_intervals
from diffcredit.testing import games


def dunnett(k, degrees, confidence=0.95):
    """The quantile of max_j |Z_j − Z_0|/(S√2), j = 1..k, Z standard normal and S² ~ χ²/degrees: what Dunnett (1955)
    tabulated for the comparison of many with one, here by quadrature over z and S."""
    z = np.linspace(-8, 8, 801)[:, None]
    s = np.ones(1) if np.isinf(degrees) else np.linspace(0.005, 4, 800)
    weights = norm.pdf(z) * (1 if np.isinf(degrees) else chi.pdf(degrees**0.5 * s, degrees))
    weights /= weights.sum()

    def rate(c):
        reach = c * s * 2**0.5
        return (weights * (norm.cdf(z + reach) - norm.cdf(z - reach)) ** k).sum()

    return brentq(lambda c: rate(c) - confidence, 1, 10, xtol=1e-3)


def best_rank_of_the_last(k, gap, degrees=np.inf, wider=1.0):
    """Of one contributor whose k rivals, all with independent errors of deviation 1, seem better by ``gap``."""
    n = k + 1
    half = np.full(n, wider * student.ppf(0.975, degrees))
    values = np.append(np.full(k, gap), 0.0)
    return rank_intervals(values, half, np.eye(n), np.zeros(n), degrees, 0.95)[0][-1]


def test_published_critical_values():
    assert dunnett(5, np.inf) == pytest.approx(2.51, abs=0.005)  # Dunnett (1964), two-sided, 5 %
    assert dunnett(5, 10) == pytest.approx(3.00, abs=0.015)


@pytest.mark.parametrize(("k", "degrees"), [(1, np.inf), (8, np.inf), (8, 5)])
@pytest.mark.parametrize("wider", [1.0, 2.0])
def test_the_critical_value_is_that_of_all_differences_at_once(k, degrees, wider):
    gap = dunnett(k, degrees) * 2**0.5 * wider
    assert best_rank_of_the_last(k, 0.93 * gap, degrees, wider) == 1
    assert best_rank_of_the_last(k, 1.07 * gap, degrees, wider) == k + 1


def test_biases_count_as_independent_errors():
    n, values = 4, np.array([0.0, 1.0, 1.0, 1.0])
    half = np.full(n, 2 * norm.ppf(0.975))  # √(3 + 1) = 2: a deviation shared by all, and biases
    shared, own = np.full((n, 1), 3**0.5), np.ones(n)
    gap = dunnett(3, np.inf) * 2**0.5
    for factor, low in ((0.93, 1), (1.07, 4)):
        assert rank_intervals(factor * gap * values, half, shared, own, np.inf, 0.95)[0][0] == low


def test_clearly_separated_contributors_have_exact_ranks():
    weights = np.array([3.0, -1.0, 7.0, 5.0, 0.5, 1.9])
    coalitions = make_design("uniform").draw(6, 0, 60)
    values = games.noisy(games.additive(weights), 0.01)(coalitions)
    for method in ("shapley", "unshrunk"):
        credits = estimate(coalitions, values, empty=0.0, full=[weights.sum()], method=method)
        low, high = credits.rank_intervals()
        assert low.tolist() == high.tolist() == [3, 6, 1, 2, 5, 4]
        low, high = credits.rank_intervals(higher_is_better=False)
        assert low.tolist() == high.tolist() == [4, 1, 6, 5, 2, 3]


def test_what_is_known_exactly_has_tied_ranks():
    n, game = 5, games.unanimity([1, 3])
    coalitions = make_design("exhaustive").draw(n, 0, 2**n - 2)
    credits = estimate(
        coalitions, game(coalitions), empty=0.0, full=1.0, method="exact", size_distribution="exhaustive"
    )
    low, high = credits.rank_intervals()
    assert low.tolist() == [3, 1, 3, 1, 3]
    assert high.tolist() == [5, 2, 5, 2, 5]


def test_rounding_is_no_difference():
    values, zeros = np.array([1.0, 1.0 + 1e-15, 0.5]), np.zeros(3)
    low, high = rank_intervals(values, zeros, np.zeros((3, 2)), zeros, np.inf, 0.95)
    assert low.tolist() == [1, 1, 3]
    assert high.tolist() == [2, 2, 3]


def noisy_game(n, m, deviation, seed):
    generator = np.random.default_rng(seed)
    weights = 1 + generator.normal(size=n)
    coalitions = make_design("uniform", seed).draw(n, 0, m)
    return weights, coalitions, coalitions @ weights + deviation * generator.normal(size=m)


def test_errors_of_the_endpoints_move_no_rank():
    _, coalitions, values = noisy_game(6, 80, 0.3, seed=1)
    known = estimate(coalitions, values, empty=0.0, full=6.0)
    noisy = estimate(coalitions, values, empty=[-50.0, 50.0], full=[-80.0, 92.0])
    assert (noisy.high - noisy.low).min() > 10 * (known.high - known.low).max()
    low, high = known.rank_intervals()
    assert (high - low).min() < 3
    np.testing.assert_array_equal(noisy.rank_intervals(), (low, high))


def test_the_rank_is_within_and_reversing_the_order_reverses_the_interval():
    for seed in range(5):
        _, coalitions, values = noisy_game(9, 50, 1.0, seed)
        credits = estimate(coalitions, values, empty=0.0, full=9.0)
        low, high = credits.rank_intervals()
        assert ((low >= 1) & (low <= credits.rank()) & (credits.rank() <= high) & (high <= 9)).all()
        reversed_low, reversed_high = credits.rank_intervals(higher_is_better=False)
        np.testing.assert_array_equal(reversed_low, 10 - high)
        np.testing.assert_array_equal(reversed_high, 10 - low)


@pytest.mark.parametrize("unknown", [np.inf, np.nan])
def test_who_has_no_finite_width_may_have_any_rank(unknown):
    values, half = np.array([30.0, 20.0, 10.0, 0.0]), np.array([1.0, unknown, 1.0, 1.0])
    low, high = rank_intervals(values, half, np.eye(4) / 2, np.zeros(4), np.inf, 0.95)
    assert low.tolist() == [1, 1, 2, 3]
    assert high.tolist() == [2, 4, 3, 4]


@pytest.mark.parametrize(("method", "games_played"), [("unshrunk", 60), ("shapley", 30)])
def test_each_contributors_interval_covers(method, games_played):
    n = 8
    hits = np.empty((games_played, n))
    widths = np.empty((games_played, n))
    for seed in range(games_played):
        weights, coalitions, values = noisy_game(n, 60, 1.0, seed)
        credits = estimate(coalitions, values, empty=0.0, full=[float(weights.sum())], method=method)
        low, high = credits.rank_intervals()
        truth = (weights[None, :] > weights[:, None]).sum(axis=1) + 1
        hits[seed], widths[seed] = (low <= truth) & (truth <= high), high - low
    assert hits.mean(axis=0).min() >= 0.95
    assert widths.mean() < 0.8 * (n - 1)  # and they say something
