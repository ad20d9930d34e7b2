import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.credit.permutation import permutation
from diffcredit.credit.table import read_table
from diffcredit.errors import UserError
from diffcredit.testing import games


def credits_of(coalitions, values, empty, full, size_distribution="permutation"):
    return permutation(read_table(coalitions, values, empty, full, size_distribution), 0.95)


def ends(game, n):
    return game(np.array([[False] * n, [True] * n])).tolist()


def prefixes(order):
    """(n−1, n): the coalitions of the first 1, …, n−1 of ``order``."""
    return np.array([np.isin(np.arange(len(order)), order[:size]) for size in range(1, len(order))])


def mean_marginals(game, orders):
    """(n,): the mean over ``orders`` of what each adds to those before."""
    n = len(orders[0])
    totals = np.zeros(n)
    for order in orders:
        chain = np.vstack([np.zeros(n, dtype=bool), prefixes(order), np.ones(n, dtype=bool)])
        totals[list(order)] += np.diff(game(chain))
    return totals / len(orders)


def test_permutations_that_do_not_touch_give_their_mean_and_its_standard_error():
    # Shifts of one order: no prefix of one is a neighbour of another's, for sizes 2 to n−2.
    n = 9
    orders = [np.roll(np.arange(n), 3 * shift) for shift in range(3)]
    rows = np.concatenate([prefixes(order) for order in orders])
    game = games.random_game(n, seed=2)
    shuffled = rows[np.random.default_rng(0).permutation(len(rows))]
    credits = credits_of(shuffled, game(shuffled), *ends(game, n))
    np.testing.assert_allclose(credits.values, mean_marginals(game, orders), atol=1e-12)
    each = np.array([mean_marginals(game, [order]) for order in orders])
    np.testing.assert_allclose(credits.standard_error, each.std(axis=0, ddof=1) / 3**0.5, atol=1e-12)


def test_an_unfinished_permutation_changes_nothing_where_it_does_not_touch():
    n = 40
    game = games.learning(n, seed=1)
    rows = make_design("permutation", 1).draw(n, 0, 3 * (n - 1) + 20)
    orders = [np.argsort(-rows[k * (n - 1) : (k + 1) * (n - 1)].sum(axis=0), kind="stable") for k in range(3)]
    credits = credits_of(rows, game(rows), *ends(game, n))
    np.testing.assert_allclose(credits.values, mean_marginals(game, orders), atol=1e-9)
    assert credits.efficient
    assert credits.diagnostics["evaluations_used"] == 3 * (n - 1)


def test_unbiased_and_no_worse_than_the_mean_of_the_permutations():
    n, k, runs = 6, 12, 40
    game = games.random_game(n, seed=4)
    truth = games.brute_force_shapley(game, n)
    errors = np.empty((2, runs, n))
    for seed in range(runs):
        rows = make_design("permutation", seed).draw(n, 0, k * (n - 1))
        orders = [np.argsort(-part.sum(axis=0), kind="stable") for part in rows.reshape(k, n - 1, n)]
        errors[0, seed] = credits_of(rows, game(rows), *ends(game, n)).values - truth
        errors[1, seed] = mean_marginals(game, orders) - truth
    flow, plain = np.sqrt((errors**2).mean(axis=(1, 2)))
    assert flow < 0.95 * plain
    assert np.sqrt((errors[0].mean(axis=0) ** 2).mean()) < 1.6 * flow / runs**0.5


@pytest.mark.parametrize(("deviation", "far"), [(0.3, 3.0), pytest.param(0.0, 0.0, marks=pytest.mark.slow)])
def test_intervals_cover(deviation, far):
    n, k, runs = 7, 40, 40

    def game(coalitions):
        return games.learning(n, seed=4)(coalitions) - far * ~coalitions.any(axis=1)

    truth = games.brute_force_shapley(game, n)
    covered, claimed, errors = np.empty((3, runs, n))
    for seed in range(runs):
        noisy = games.noisy(game, deviation, seed)
        rows = make_design("permutation", seed).draw(n, 0, k * (n - 1) + 3)
        empty, full = ends(noisy, n)
        credits = credits_of(rows, noisy(rows), *(([empty], [full]) if deviation else (empty, full)))
        covered[seed] = (credits.low <= truth) & (truth <= credits.high)
        errors[seed], claimed[seed] = credits.values - truth, credits.standard_error
    assert 0.93 <= covered.mean() <= 0.995
    assert 0.9 < np.sqrt((claimed**2).mean() / (errors**2).mean()) < 1.4


def test_one_permutation_tells_no_error():
    rows = prefixes((2, 0, 1, 3))
    credits = credits_of(rows, np.array([1.0, 2.0, 5.0]), 0.0, 7.0)
    assert sorted(credits.values) == [1, 1, 2, 3]
    assert (credits.low == -np.inf).all()
    assert (credits.high == np.inf).all()


def test_no_whole_permutation_is_refused():
    rows = prefixes((4, 2, 0, 1, 3, 5))
    with pytest.raises(UserError, match="all 5 prefixes of at least one permutation, 2 more"):
        credits_of(rows[:3], np.ones(3), 0.0, 1.0)
    with pytest.raises(UserError, match="one permutation, 1 more"):
        credits_of(rows[1:], np.ones(4), 0.0, 1.0)
    with pytest.raises(UserError, match="one permutation, 5 more"):
        credits_of(rows[2:3], np.ones(1), 0.0, 1.0)
