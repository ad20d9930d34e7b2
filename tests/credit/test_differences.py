"""The exact Shapley value, leave-one-out and add-one-in."""

from functools import partial
from math import comb

import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.credit.differences import one_by_one
from diffcredit.credit.table import read_table
from diffcredit.errors import UserError
from diffcredit.testing import games

METHODS = {name: partial(one_by_one, method=name) for name in ("leave-one-out", "add-one-in")}
BOTH = pytest.mark.parametrize("method", list(METHODS))


def credits_of(method, coalitions, values, empty, full, size_distribution=None):
    return METHODS[method](read_table(coalitions, values, empty, full, size_distribution or method), 0.95)


def truth_of(method, game, n):
    one = np.eye(n, dtype=bool)
    if method == "add-one-in":
        return game(one) - game(np.zeros((1, n), dtype=bool))
    return game(np.ones((1, n), dtype=bool)) - game(~one)


def ends(game, n, replicates=1):
    return game(np.zeros((replicates, n), dtype=bool)), game(np.ones((replicates, n), dtype=bool))


@BOTH
@pytest.mark.parametrize("n", [2, 3, 8])
def test_differences_whatever_the_order_and_the_other_coalitions(n, method):
    game = games.random_game(n, seed=n)
    own = make_design(method, 3).draw(n, 0, n)
    every = make_design("exhaustive").draw(n, 0, 2**n - 2)
    for coalitions, design in ((own, method), (every, "exhaustive")):
        credits = credits_of(method, coalitions, game(coalitions), *ends(game, n), design)
        np.testing.assert_allclose(credits.values, truth_of(method, game, n), atol=1e-12)
        assert credits.diagnostics["sum"] == pytest.approx(truth_of(method, game, n).sum())


@pytest.mark.parametrize(("method", "known"), [("leave-one-out", False), ("add-one-in", True)])
def test_intervals_cover(method, known):
    n, runs, noise = 6, 80, 0.7
    game = games.random_game(n, seed=1)
    truth = truth_of(method, game, n)
    errors, claimed, covered = np.empty((3, runs, n))
    for seed in range(runs):
        noisy = games.noisy(game, noise, seed)
        rows = np.tile(make_design(method).draw(n, 0, n), (2, 1))
        empty, full = (float(end[0]) for end in ends(game, n)) if known else ends(noisy, n, 3)
        credits = credits_of(method, rows, noisy(rows), empty, full)
        errors[seed], claimed[seed] = credits.values - truth, credits.standard_error
        covered[seed] = (credits.low <= truth) & (truth <= credits.high)
    assert covered.mean() == pytest.approx(0.95, abs=0.03)
    expected = noise * (1 / 2 + (0 if known else 1 / 3)) ** 0.5
    assert np.sqrt((claimed**2).mean()) == pytest.approx(expected, rel=0.06)
    if not known:
        # The endpoint's error is the same in all credits: their covariance is its variance.
        covariance = credits.influence @ credits.influence.T
        shared = credits.influence[:, -1 if method == "leave-one-out" else -2] ** 2
        np.testing.assert_allclose(covariance[0, 1:], shared[1:])
        assert np.cov(errors.T)[0, 1:].mean() == pytest.approx(noise**2 / 3, rel=0.4)


@BOTH
def test_the_endpoints_replicates_alone_tell_the_noise(method):
    rows = make_design(method).draw(5, 0, 5)
    credits = credits_of(method, rows, np.zeros(5), [1.0, 3.0], [1.0, 3.0])
    assert credits.degrees == 1
    assert credits.diagnostics["sigma"] == pytest.approx(2**0.5)
    # One evaluation each, of variance 2, and the mean of the endpoint's two.
    np.testing.assert_allclose(credits.standard_error, 3**0.5)


@BOTH
@pytest.mark.parametrize(("empty", "full"), [(0.0, 1.0), ([0.0], [1.0])])
def test_without_replicates_the_noise_is_not_known(method, empty, full):
    rows = make_design(method).draw(5, 0, 5)
    credits = credits_of(method, rows, np.arange(5.0), empty, full)
    assert np.isfinite(credits.values).all()
    assert (credits.low == -np.inf).all()
    assert (credits.high == np.inf).all()
    assert credits.rank_intervals()[1].tolist() == [5] * 5


def test_missing_contributors_are_named():
    rows = ~np.eye(9, dtype=bool)[[0, 1, 2, 3, 5, 6, 8]]
    with pytest.raises(UserError, match=r"leave-one-out needs 2 more, .*without contributor 4, 7"):
        credits_of("leave-one-out", rows, np.ones(7), 0.0, 1.0)
    with pytest.raises(UserError, match=r"needs 9 more, .*of only contributor 0, 1, 2, 3, 4 and 4 others"):
        credits_of("add-one-in", rows, np.ones(7), 0.0, 1.0, "leave-one-out")


def test_without_replicates_the_table_is_the_game():
    rows = make_design("exhaustive").draw(5, 0, 30)
    credits = estimate(rows, games.random_game(5)(rows), empty=0.0, full=1.0, method="exact")
    np.testing.assert_array_equal(credits.low, credits.values)
    np.testing.assert_array_equal(credits.high, credits.values)
    assert credits.evaluations == 30


def test_replicates_give_the_error_of_the_exact_value():
    n, sigma = 4, 0.7
    weights = np.array([1 / (n * comb(n - 1, size - 1)) for size in range(1, n + 1)])  # of members, by size
    game = games.noisy(games.random_game(n, seed=1), sigma, seed=3)
    rows = np.tile(make_design("exhaustive").draw(n, 0, 14), (40, 1))
    ends = {"empty": game(np.zeros((40, n), dtype=bool)), "full": game(np.ones((40, n), dtype=bool))}
    credits = estimate(rows, game(rows), **ends, method="exact")
    # Σ w²σ²/r over the coalitions with a contributor, and as much over those without.
    variance = 2 * sum(comb(n - 1, size - 1) * weights[size - 1] ** 2 for size in range(1, n + 1)) * sigma**2 / 40
    np.testing.assert_allclose(credits.standard_error**2, variance, rtol=0.1)


def test_missing_coalitions_are_named():
    coalitions = make_design("exhaustive").draw(4, 0, 14)
    coalitions[coalitions.sum(axis=1) == 3] = [True, False, False, False]
    with pytest.raises(
        UserError, match=r"2\^4 − 2 coalitions, 1110 among those missing\) needs 14 different coalitions, 4 more"
    ):
        estimate(coalitions, np.ones(14), empty=0, full=1, method="exact")
    with pytest.raises(UserError, match="needs 14 different coalitions, 6 more"):
        estimate(coalitions[:10], np.ones(10), empty=0, full=1, method="exact")
