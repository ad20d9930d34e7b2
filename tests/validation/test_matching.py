import numpy as np
import pytest
from tests.validation.made_up import recipe_game, uniform

from diffcredit.testing.games import additive
from diffcredit.validation.statistics.games import replicates_of, shared

WEIGHTS = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]


def test_coalitions_are_matched_by_content_and_replicates_averaged():
    rows = uniform(6, 20)
    assert len(np.unique(rows, axis=0)) == 20
    truth = recipe_game(additive(WEIGHTS), np.concatenate([rows[12:3:-1], rows[5:7]]))
    truth.values[-2:] += [3.0, 6.0]
    both = shared(recipe_game(additive(WEIGHTS, 100.0), rows[:10]), truth)
    assert (both.coalitions == rows[4:10]).all()
    assert both.first == pytest.approx(rows[4:10] @ WEIGHTS + 100)
    assert both.second == pytest.approx(rows[4:10] @ WEIGHTS + [0, 1.5, 3, 0, 0, 0])
    assert both.second_replicates.tolist() == [1, 2, 2, 1, 1, 1]
    assert (both.sizes == rows[4:10].sum(axis=1)).all()


def test_nothing_shared():
    rows = uniform(6, 20)
    both = shared(recipe_game(additive(WEIGHTS), rows[:10]), recipe_game(additive(WEIGHTS), rows[10:]))
    assert both.coalitions.shape == (0, 6)
    assert both.first.shape == both.second.shape == both.second_replicates.shape == (0,)


def test_endpoints_are_not_among_the_coalitions():
    rows = np.concatenate([np.zeros((1, 6), bool), uniform(6, 5), np.ones((2, 6), bool)])
    found = replicates_of(recipe_game(additive(WEIGHTS), rows))
    assert (found.coalitions == rows[1:6]).all()
    assert found.means == pytest.approx(rows[1:6] @ WEIGHTS)
