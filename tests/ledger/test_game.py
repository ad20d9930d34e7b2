import random

import numpy as np
import pytest

from diffcredit.ledger import Evaluation, Value, game_of


def evaluation(coalition, value, replicate=0, purpose="estimate", status="done", prop="colourfulness") -> Evaluation:
    """``value`` None: the property could not be measured; "absent": it was not measured at all."""
    values = (
        ()
        if value == "absent" or status == "failed"
        else (Value(prop, value, error="it raised" if value is None else None), Value("other", -1.0))
    )
    return Evaluation(
        coalition=coalition,
        replicate=replicate,
        purpose=purpose,
        status=status,
        values=values,
        error="out of memory" if status == "failed" else None,
        numerics={},
        seconds={},
        worker="w",
        started="2025-01-01T00:00:00.000+00:00",
        finished="2025-01-01T00:00:01.000+00:00",
    )


EVALUATIONS = [
    evaluation("011", 1.0),
    evaluation("110", 3.0),
    evaluation("110", 4.0, replicate=1),
    evaluation("100", 2.0),
    evaluation("000", 10.0, purpose="endpoint"),
    evaluation("000", 11.0, purpose="endpoint", replicate=1),
    evaluation("111", 20.0, purpose="endpoint"),
    evaluation("111", 19.0, purpose="endpoint", replicate=1),
    # not of this game
    evaluation("001", 99.0, purpose="truth"),
    evaluation("010", 99.0, purpose="pilot"),
    evaluation("111", 99.0, purpose="truth"),
    evaluation("101", 99.0, status="failed"),
    evaluation("000", 99.0, purpose="endpoint", replicate=2, status="failed"),
    # not measured
    evaluation("010", None),
    evaluation("001", "absent"),
    evaluation("111", None, purpose="endpoint", replicate=2),
    evaluation("100", None, replicate=1, purpose="truth"),
]


@pytest.mark.parametrize("seed", range(5))
def test_the_table_of_one_property_in_any_order_of_arrival(seed):
    arrived = list(EVALUATIONS)
    random.Random(seed).shuffle(arrived)
    game = game_of(iter(arrived), "colourfulness")
    np.testing.assert_array_equal(game.coalitions, np.array([[0, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 0]], dtype=bool))
    assert game.coalitions.dtype == np.bool_
    assert game.values.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert game.empty == (10.0, 11.0)
    assert game.full == (20.0, 19.0)
    assert game.missing == 3


def test_each_property_has_its_own_values():
    game = game_of(EVALUATIONS, "other")
    assert set(game.values) == {-1.0}
    assert len(game.values) == 5  # one more, whose colourfulness could not be measured
    assert game.missing == 1


def test_more_than_nine_replicates_stay_in_their_order():
    replicates = [evaluation("10", float(k), replicate=k) for k in range(12)]
    assert game_of(reversed(replicates), "colourfulness").values.tolist() == list(range(12))


def test_a_coalition_of_all_that_the_design_drew_is_a_row():
    game = game_of([evaluation("11", 1.0), evaluation("00", 2.0)], "colourfulness")
    assert game.coalitions.tolist() == [[False, False], [True, True]]
    assert game.values.tolist() == [2.0, 1.0]
    assert (game.empty, game.full) == ((), ())


def test_before_the_first_row_the_contributors_are_known():
    game = game_of([evaluation("000", 1.0, purpose="endpoint")], "colourfulness")
    assert game.coalitions.shape == (0, 3)
    assert game.values.shape == (0,)
    nothing = game_of([], "colourfulness")
    assert (nothing.coalitions.shape, nothing.missing) == ((0, 0), 0)
