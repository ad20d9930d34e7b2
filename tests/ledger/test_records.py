from dataclasses import asdict, replace

import pytest

from diffcredit.ledger import PropertyRecord, RecipeRecord, Value
from diffcredit.testing.ledgers import evaluation
from diffcredit.util.artifacts import canonical_json


def test_a_recipes_fingerprint_holds_for_its_content_not_its_name():
    recipe = RecipeRecord("a", {"x": 1, "y": {"z": 2}}, "w")
    assert RecipeRecord("b", {"y": {"z": 2}, "x": 1}, "w").fingerprint == recipe.fingerprint
    assert RecipeRecord("a", {"x": 1, "y": {"z": 3}}, "w").fingerprint != recipe.fingerprint
    assert RecipeRecord("a", {"x": 1, "y": {"z": 2}}, "v").fingerprint != recipe.fingerprint


def test_a_propertys_fingerprint_holds_for_its_settings_and_state():
    prop = PropertyRecord("a", {"x": 1}, higher_is_better=True, state="s")
    assert replace(prop, name="b", higher_is_better=False).fingerprint == prop.fingerprint
    assert replace(prop, settings={"x": 2}).fingerprint != prop.fingerprint
    assert replace(prop, state="t").fingerprint != prop.fingerprint


def test_a_value_is_a_number_or_an_error():
    with pytest.raises(ValueError, match="exactly one"):
        Value("quality", None)
    with pytest.raises(ValueError, match="exactly one"):
        Value("quality", 1.0, error="failed")


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


def test_an_evaluation_is_json():
    assert '"coalition":"0110"' in canonical_json(asdict(evaluation()))
