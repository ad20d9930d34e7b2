"""Records, their differences, and the table of a property."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffcredit.ledger import Evaluation, PropertyRecord, RecipeRecord, Value, differences, game_of
from diffcredit.util.artifacts import fingerprint

from .contract import evaluation


def test_a_fingerprint_holds_for_the_content_not_the_name():
    recipe = RecipeRecord("a", {"x": 1, "y": {"z": 2}}, "w")
    assert RecipeRecord("b", {"y": {"z": 2}, "x": 1}, "w").fingerprint == recipe.fingerprint
    assert replace(recipe, settings={"x": 1, "y": {"z": 3}}).fingerprint != recipe.fingerprint
    assert replace(recipe, weights="v").fingerprint != recipe.fingerprint
    prop = PropertyRecord("a", {"x": 1}, higher_is_better=True, state="s")
    assert replace(prop, name="b", higher_is_better=False).fingerprint == prop.fingerprint
    assert replace(prop, settings={"x": 2}).fingerprint != prop.fingerprint
    assert replace(prop, state="t").fingerprint != prop.fingerprint


@pytest.mark.parametrize(
    "wrong",
    [
        {"coalition": "01a"},
        {"coalition": ""},
        {"replicate": -1},
        {"purpose": "estimation"},
        {"status": "running"},
        {"status": "failed"},
        {"error": "failed"},
        {"values": (Value("quality", 1.0), Value("quality", 2.0))},
    ],
)
def test_a_malformed_evaluation_cannot_be_made(wrong):
    with pytest.raises(ValueError, match=r"must|has|one property"):
        replace(evaluation(), **wrong)


@pytest.mark.parametrize("fields", [{"value": None}, {"value": 1.0, "error": "failed"}])
def test_a_value_is_a_number_or_an_error(fields):
    with pytest.raises(ValueError, match="exactly one"):
        Value("quality", **fields)


def test_differences_name_each_leaf_with_both_values():
    old = {"retraining": {"steps": 100, "rank": 4}, "data": {"path": "a"}, "layers": [1, 2, 3], "same": [1], "n": 1}
    new = {"retraining": {"steps": 200}, "data": {"path": "b", "size": 32}, "layers": [1, 5, 3], "same": [1], "n": 1.0}
    assert differences(old, new) == [
        'data.path "a" → "b"',
        "data.size (absent) → 32",
        "layers[1] 2 → 5",
        "n 1 → 1.0",
        "retraining.rank 4 → (absent)",
        "retraining.steps 100 → 200",
    ]
    assert differences({"a": [1]}, {"a": [1, 2]}) == ["a [1] → [1,2]"]
    (line,) = differences({"a": "x" * 500}, {"a": "y"})
    assert line.startswith('a "xxx')
    assert line.endswith('… → "y"')
    assert len(line) < 100


LEAVES = st.sampled_from([None, True, 0, 1, 1.0, -0.5, "", "1", "a"])
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=4,
)
SETTINGS = st.dictionaries(st.sampled_from("ab"), NESTED, max_size=2)


@given(SETTINGS, SETTINGS)
def test_differences_are_empty_exactly_where_fingerprints_are_equal(old, new):
    assert (differences(old, new) == []) == (fingerprint(old) == fingerprint(new))
    assert differences(old, old) == []


def measured(coalition, value, replicate=0, purpose="estimate", status="done") -> Evaluation:
    """``value`` None: the property could not be measured; "absent": it was not measured at all."""
    values = (Value("colour", value, error="it raised" if value is None else None), Value("other", -1.0))
    failed = status == "failed"
    return replace(
        evaluation(coalition),
        replicate=replicate,
        purpose=purpose,
        status=status,
        values=() if value == "absent" or failed else values,
        error="out of memory" if failed else None,
    )


EVALUATIONS = [
    measured("011", 1.0),
    measured("110", 3.0),
    measured("110", 4.0, replicate=1),
    measured("100", 2.0),
    measured("000", 10.0, purpose="endpoint"),
    measured("000", 11.0, purpose="endpoint", replicate=1),
    measured("111", 20.0, purpose="endpoint"),
    measured("111", 19.0, purpose="endpoint", replicate=1),
    # not of this game
    measured("001", 99.0, purpose="truth"),
    measured("010", 99.0, purpose="pilot"),
    measured("111", 99.0, purpose="truth"),
    measured("101", 99.0, status="failed"),
    measured("000", 99.0, purpose="endpoint", replicate=2, status="failed"),
    # not measured
    measured("010", None),
    measured("001", "absent"),
    measured("111", None, purpose="endpoint", replicate=2),
    measured("100", None, replicate=1, purpose="truth"),
]


@pytest.mark.parametrize("seed", range(3))
def test_the_table_of_one_property_in_any_order_of_arrival(seed):
    arrived = list(EVALUATIONS)
    random.Random(seed).shuffle(arrived)
    game = game_of(iter(arrived), "colour")
    np.testing.assert_array_equal(game.coalitions, np.array([[0, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 0]], dtype=bool))
    assert game.coalitions.dtype == np.bool_
    assert game.values.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert game.empty == (10.0, 11.0)
    assert game.full == (20.0, 19.0)
    assert game.missing == 3
    other = game_of(arrived, "other")
    assert set(other.values) == {-1.0}
    assert (len(other.values), other.missing) == (5, 1)  # one more, whose colour could not be measured


def test_more_than_nine_replicates_stay_in_their_order():
    replicates = [measured("10", float(k), replicate=k) for k in range(12)]
    assert game_of(reversed(replicates), "colour").values.tolist() == list(range(12))


def test_a_coalition_of_all_that_the_design_drew_is_a_row():
    game = game_of([measured("11", 1.0), measured("00", 2.0)], "colour")
    assert game.coalitions.tolist() == [[False, False], [True, True]]
    assert game.values.tolist() == [2.0, 1.0]
    assert (game.empty, game.full) == ((), ())


def test_before_the_first_row_the_contributors_are_known():
    game = game_of([measured("000", 1.0, purpose="endpoint")], "colour")
    assert game.coalitions.shape == (0, 3)
    assert game.values.shape == (0,)
    nothing = game_of([], "colour")
    assert (nothing.coalitions.shape, nothing.missing) == ((0, 0), 0)
