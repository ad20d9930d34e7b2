"""What is drawn and written without a model: seeds, coalitions, replicates, canonical texts, columns."""

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guards import names
from guards.golden import golden
from guards.made_up import write_study

VALIDATION = {"shares": [0.25, 0.5], "coalitions": 12, "seeds": 2, "evaluations": 10}
STOP = {"evaluations": 20}
VALUES = [
    None,
    {"b": [1, 2.5, -0.0, 1e-7, 1e22, 0.1], "a": {"z": True, "é": 'ü\n"\u2028'}, "A": False},
    [[], {}, "", 2**63, 1.0, 1],
]


def found(folder: Path) -> dict[str, Any]:
    study = names.Study.load(write_study(folder, validation=VALIDATION, stop=STOP))
    texts = seed_texts()
    arrays = {"b": np.arange(6, dtype=np.uint8).reshape(2, 3), "a": np.array([0.5, -1.0])}
    return {
        "strings that seeds derive from": texts,
        "seeds": {" ".join(each): names.derive_seed(0, *each, 3) for each in texts},
        "an evaluation's seed": names.derive_seed(7, "01101", np.int64(2)),
        "separators": [names.derive_seed("a", "b"), names.derive_seed("a\x1fb"), names.derive_seed("a\x1e", "b")],
        "designs": {name: _design(folder, name) for name in map(_asked, names.DESIGNS)},
        "design beside a validation": _told(names.design_tasks(study, 20)),
        "tasks": {what: _told(tasks) for what, tasks in names.other_tasks(study).items()},
        "canonical JSON": [names.canonical_json(value) for value in VALUES],
        "fingerprints": [*map(names.fingerprint, VALUES), names.fingerprint_arrays(arrays)],
        "purposes": list(names.PURPOSES),
        "statuses": list(names.STATUSES),
        "schema": names.SCHEMA_VERSION,
        "columns": names.ledger_columns(),
    }


def seed_texts() -> list[list[str]]:
    """The texts in the calls of derive_seed in the source, each once."""
    texts = set()
    for file in names.SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "derive_seed":
                given = [each.value for each in node.args if isinstance(each, ast.Constant)]
                texts.add(tuple(value for value in given if isinstance(value, str)))
    return [list(each) for each in sorted(texts) if each]


def _asked(name: str) -> str:
    return name.replace("(alpha)", "(0.5)")


def _design(folder: Path, name: str) -> list[str]:
    design = {"distribution": name, "seed": 3, "full_replicates": 2}
    study = names.Study.load(write_study(folder, design=design, stop=STOP))
    return _told(names.design_tasks(study, 20))


def _told(tasks: list[Any]) -> list[str]:
    return [f"{task.purpose} {task.coalition} {task.replicate}" for task in tasks]


@pytest.fixture(scope="module")
def draws(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return found(tmp_path_factory.mktemp("draws"))


@pytest.mark.parametrize("what", golden("draws"))
def test_is_as_it_was(draws, what):
    assert draws[what] == golden("draws")[what]
