"""What goes to other machines comes back as it was."""

import json
import math
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_evaluators import Toy, Troubled

from diffcredit.execution.ray.actor import (
    evaluation_of,
    evaluation_text,
    factory_of,
    factory_text,
    owner_of,
)
from diffcredit.ledger import Evaluation, RecipeRecord, Value
from diffcredit.study.study import Study
from tiny_study import write_study


@given(st.floats(), st.floats(allow_nan=False, allow_infinity=False), st.text())
def test_an_evaluation_comes_back_bit_for_bit(value, seconds, error):
    values = (Value("a", value, 0.1), Value("b", None, error=error))
    times = "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:01+00:00"
    evaluation = Evaluation(
        "01", 3, "truth", "done", values, None, {"threads": 1}, {"training": seconds}, "w", *times, {"python": "3"}
    )
    back = evaluation_of(evaluation_text(evaluation))
    if math.isnan(value):
        assert math.isnan(back.values[0].value)
    else:
        assert back == evaluation
        assert math.copysign(1, back.values[0].value) == math.copysign(1, value)


def module_function(number: int, *, name: str) -> str:
    return f"{name} {number}"


def test_factories_come_back():
    assert factory_of(factory_text(Troubled(Path("/tmp/x"), 3)), {}) == Troubled(Path("/tmp/x"), 3)
    assert factory_of(factory_text(partial(Troubled, Path("/tmp/x"), times=2)), {})() == Troubled(Path("/tmp/x"), 2)
    assert factory_of(factory_text(partial(module_function, 3, name="n")), {})() == "n 3"
    recipe = RecipeRecord("r", {"a": [1, {"b": None}], "tuple": "no"}, "w")
    back = factory_of(factory_text(partial(Toy().evaluate, ("x", 1.5), recipe)), {})
    assert back.args == (("x", 1.5), recipe)
    assert back.func.__self__ == Toy()
    assert owner_of(back) == Toy()
    assert owner_of(Toy()) is None


@pytest.mark.parametrize("cannot", [lambda: None, partial(Toy, object()), partial(Toy, {1}), Toy().evaluate([])])
def test_what_cannot_travel_says_so(cannot):
    with pytest.raises(TypeError, match="cannot be sent to workers on other machines"):
        factory_text(cannot)


LEVELS = {"loss": 1.0, "colourfulness": 40.0}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"reference": LEVELS, "matters": LEVELS, "contributions.house": {"source": "openmoji", "part": "house"}},
        {"reference": "house", "contributions.house": "house", "contributions.seed": 1, "model.seed": 2},
        {"contributions.house": ["Emily Jäger"], "retired": ["warmth"]},
    ],
)
def test_a_study_travels_as_its_settings(tmp_path, monkeypatch, more):
    changes = more | {
        "properties": [{"name": "heldout_loss", "as": "loss", "time_steps": 2}, "colourfulness"],
        "stop": {"any": [{"evaluations": 16}, {"correlation": 0.9}, {"money": {"amount": 3, "per_hour": 0.1}}]},
        "contributions.holdout": 0.25,
        "validation": {"shares": [0.5], "retrainings": [{"method": "fine_tune", "steps": 3}]},
    }
    write_study(tmp_path, changes)
    monkeypatch.chdir(tmp_path)
    study = Study.load("study.yaml")
    text = factory_text(partial(study.recipe.evaluator, ["loss"]))
    assert json.loads(text)  # JSON, and nothing else
    back = factory_of(text, {})
    monkeypatch.chdir("/")  # a worker works elsewhere
    there = owner_of(back).study
    assert there.config == study.config
    assert there.file == tmp_path / "study.yaml"
    assert back.args == (["loss"],)


def test_paths_are_taken_from_where_they_lie_here():
    factory = partial(
        module_function, Path("/data/images/a.png"), name=["/data", "/data/images", "/database", "x /data", 3]
    )
    there = factory_of(factory_text(factory), {"/data": "/node/0/data", "/data/images": "/node/1/images"})
    assert there.args == (Path("/node/1/images/a.png"),)
    assert there.keywords == {"name": ["/node/0/data", "/node/1/images", "/database", "x /data", 3]}
