import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffcredit.coalitions import make_design
from diffcredit.credit.differences import add_one_in, leave_one_out
from diffcredit.credit.table import read_table
from diffcredit.errors import UserError
from diffcredit.testing import games

METHODS = {"leave-one-out": leave_one_out, "add-one-in": add_one_in}
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


def test_known_answers():
    # Costs 6, 2, 3: without the first the cost falls to 3, without the others it stays.
    game, n = games.airport([6, 2, 3]), 3
    rows = np.concatenate([np.eye(3, dtype=bool), ~np.eye(3, dtype=bool)])
    assert credits_of("leave-one-out", rows, game(rows), *ends(game, n), "exhaustive").values.tolist() == [3, 0, 0]
    assert credits_of("add-one-in", rows, game(rows), *ends(game, n), "exhaustive").values.tolist() == [6, 2, 3]


values_of = st.lists(st.integers(-1000, 1000), min_size=16, max_size=16)


@BOTH
@settings(max_examples=15, deadline=None)
@given(a=values_of, b=values_of, scale=st.integers(-5, 5))
def test_linearity_symmetry_and_null_player(method, a, b, scale):
    rows = make_design(method).draw(4, 0, 4)

    def game(table):
        # Contributors 0 and 1 count through their number alone, and 3 not at all.
        return lambda x: np.array(table, dtype=float)[x[:, 0].astype(int) + x[:, 1] + 4 * x[:, 2]]

    def values(table):
        return credits_of(method, rows, game(table)(rows), *ends(game(table), 4)).values

    first, second = values(a), values(b)
    assert first[0] == first[1]
    assert first[3] == 0
    np.testing.assert_allclose(values(np.array(a) + scale * np.array(b)), first + scale * second, atol=1e-9)


@BOTH
@pytest.mark.parametrize("known", [False, True])
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
