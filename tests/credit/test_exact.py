import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.errors import UserError
from diffcredit.testing import games

GAMES = {
    "additive": games.additive([1.5, -2, 0, 3, 0.25], offset=4),
    "unanimity": games.unanimity([1, 3], value=2),
    "airport": games.airport([1, 5, 2, 2, 8]),
    "voting": games.weighted_voting([4, 3, 2, 1, 1], quota=6),
    "random": games.random_game(5, seed=3),
    "learning": games.learning(5, seed=2),
}


def from_all(game, n, method, size_distribution="exhaustive", repeat=1):
    coalitions = np.tile(make_design("exhaustive").draw(n, 0, 2**n - 2), (repeat, 1))
    nobody, everybody = game(np.zeros((1, n), dtype=bool)), game(np.ones((1, n), dtype=bool))
    return estimate(
        coalitions,
        game(coalitions),
        empty=nobody[0],
        full=everybody[0],
        method=method,
        size_distribution=size_distribution,
    )


@pytest.mark.parametrize("method", ["exact", "kernelshap", "unshrunk"])
@pytest.mark.parametrize("name", list(GAMES))
def test_all_coalitions_give_the_shapley_value(name, method):
    credits = from_all(GAMES[name], 5, method)
    np.testing.assert_allclose(credits.values, games.brute_force_shapley(GAMES[name], 5), atol=1e-8)


@pytest.mark.parametrize("method", ["exact", "kernelshap", "unshrunk"])
@pytest.mark.parametrize("n", [2, 3, 10, 12])
def test_all_coalitions_give_the_shapley_value_for_few_and_more_contributors(n, method):
    game = games.random_game(n, seed=n)
    np.testing.assert_allclose(from_all(game, n, method).values, games.brute_force_shapley(game, n), atol=1e-8)


values_of = st.lists(st.integers(-1000, 1000), min_size=16, max_size=16)


def tabled(table):
    array = np.array(table, dtype=float)
    return lambda coalitions: array[coalitions @ (1 << np.arange(4))]


@pytest.mark.parametrize("method", ["exact", "kernelshap", "unshrunk"])
@settings(max_examples=40, deadline=None)
@given(a=values_of, b=values_of, scale=st.integers(-5, 5))
def test_efficiency_and_linearity(method, a, b, scale):
    first, second = from_all(tabled(a), 4, method), from_all(tabled(b), 4, method)
    assert first.values.sum() == pytest.approx(a[15] - a[0], abs=1e-8)
    combined = from_all(tabled(np.array(a) + scale * np.array(b)), 4, method)
    np.testing.assert_allclose(combined.values, first.values + scale * second.values, atol=1e-7)


@pytest.mark.parametrize("method", ["exact", "kernelshap", "unshrunk"])
@settings(max_examples=40, deadline=None)
@given(a=values_of)
def test_symmetry_and_null_player(method, a):
    # F depends on contributors 0 and 1 through their number alone, and not at all on contributor 3.
    def game(coalitions):
        return np.array(a, dtype=float)[coalitions[:, 0].astype(int) + coalitions[:, 1] + 4 * coalitions[:, 2]]

    credits = from_all(game, 4, method).values
    assert credits[0] == pytest.approx(credits[1], abs=1e-8)
    assert credits[3] == pytest.approx(0, abs=1e-8)


def test_without_replicates_the_table_is_the_game():
    credits = from_all(GAMES["random"], 5, "exact")
    np.testing.assert_array_equal(credits.low, credits.values)
    np.testing.assert_array_equal(credits.high, credits.values)
    assert credits.evaluations == 30


def test_replicates_give_intervals_that_cover():
    n, sims = 4, 400
    truth = games.brute_force_shapley(games.random_game(n, seed=1), n)
    covered = []
    for seed in range(sims):
        game = games.noisy(games.random_game(n, seed=1), 0.7, seed)
        coalitions = np.tile(make_design("exhaustive").draw(n, 0, 14), (3, 1))
        credits = estimate(
            coalitions,
            game(coalitions),
            empty=game(np.zeros((3, n), dtype=bool)),
            full=game(np.ones((3, n), dtype=bool)),
            method="exact",
        )
        covered.append((credits.low <= truth) & (truth <= credits.high))
    assert np.mean(covered) == pytest.approx(0.95, abs=0.025)


def test_missing_coalitions_are_named():
    coalitions = make_design("exhaustive").draw(4, 0, 14)
    coalitions[coalitions.sum(axis=1) == 3] = [True, False, False, False]
    with pytest.raises(
        UserError, match=r"2\^4 − 2 coalitions, 1110 among those missing\) needs 14 different coalitions, 4 more"
    ):
        estimate(coalitions, np.ones(14), empty=0, full=1, method="exact")
    with pytest.raises(UserError, match="needs 14 different coalitions, 6 more"):
        estimate(coalitions[:10], np.ones(10), empty=0, full=1, method="exact")
