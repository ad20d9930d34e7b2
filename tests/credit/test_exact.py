import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.errors import UserError
from diffcredit.testing import games


def test_without_replicates_the_table_is_the_game():
    rows = make_design("exhaustive").draw(5, 0, 30)
    credits = estimate(rows, games.random_game(5)(rows), empty=0.0, full=1.0, method="exact")
    np.testing.assert_array_equal(credits.low, credits.values)
    np.testing.assert_array_equal(credits.high, credits.values)
    assert credits.evaluations == 30


def test_replicates_give_intervals_that_cover():
    n, sims = 4, 150
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
    assert np.mean(covered) == pytest.approx(0.95, abs=0.03)


def test_missing_coalitions_are_named():
    coalitions = make_design("exhaustive").draw(4, 0, 14)
    coalitions[coalitions.sum(axis=1) == 3] = [True, False, False, False]
    with pytest.raises(
        UserError, match=r"2\^4 − 2 coalitions, 1110 among those missing\) needs 14 different coalitions, 4 more"
    ):
        estimate(coalitions, np.ones(14), empty=0, full=1, method="exact")
    with pytest.raises(UserError, match="needs 14 different coalitions, 6 more"):
        estimate(coalitions[:10], np.ones(10), empty=0, full=1, method="exact")
