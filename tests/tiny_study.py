"""A study that takes seconds: the bundled emoji at 16 px, a few steps of everything, 16 evaluations."""

import copy
import os
import sqlite3
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

CONFIG: dict[str, Any] = {
    "name": "tiny",
    "results": "results",
    "device": "cpu",
    "contributions": {"source": "openmoji", "resolution": 16},
    "model": {"preset": "tiny", "train": {"steps": 2, "batch_size": 8, "learning_rate": 1e-3}},
    "retraining": {"method": "sparsified", "recover_steps": 2, "steps": 1},
    "sampling": {"steps": 2, "images": 4},
    "properties": [
        {"name": "heldout_loss", "time_steps": 1},
        {"name": "colourfulness"},
        {"name": "cluster_entropy", "clusters": 2},
    ],
    "design": {"full_replicates": 1},
    "stop": {"evaluations": 16},
}

SMALL: dict[str, Any] = {
    "contributions": {"path": "images", "resolution": 16},
    "properties": ["colourfulness"],
    "retraining": {"method": "fine_tune", "steps": 1},
    "stop.evaluations": 8,
}
"""Changes to the tiny study: a few random images, one cheap property."""

# More threads would not be faster, and the bits of a number depend on how many there are.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "DIFFCREDIT_ALLOW_PLUGINS": "1"}


def changed(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with ``changes`` by dotted key; None removes the key."""
    result = copy.deepcopy(config)
    for key, value in changes.items():
        *above, last = key.split(".")
        section = result
        for name in above:
            section = section.setdefault(name, {})
        if value is None:
            section.pop(last)
        else:
            section[last] = copy.deepcopy(value)
    return result


def write_study(folder: Path, changes: dict[str, Any] | None = None) -> Path:
    """``study.yaml`` in ``folder``: the tiny study with ``changes``."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "study.yaml"
    text = yaml.safe_dump(changed(CONFIG, changes or {}), allow_unicode=True, sort_keys=False)
    file.write_text(text, encoding="utf-8")
    return file


def write_small(folder: Path, changes: dict[str, Any] | None = None, contributors: str = "ada bob cem") -> Path:
    """``study.yaml`` and its images in ``folder``: the small study with ``changes``."""
    images_of(folder / "images", contributors.split())
    return write_study(folder, {**SMALL, **(changes or {})})


def images_of(folder: Path, contributors: list[str], each: int = 6) -> Path:
    """A folder per contributor, every image told from every other."""
    random = np.random.default_rng(0)
    for name in contributors:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for index in range(each):
            pixels = random.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
    return folder


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """An answer of the study's ledger, past all of diffcredit's code."""
    connection = sqlite3.connect(f"file:{folder / 'results' / 'ledger.db'}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def recorded_values(folder: Path) -> dict[tuple[str, str, int, str], bytes | None]:
    """The eight bytes of every value, by recipe, coalition, replicate and property; None for an error."""
    found = rows(
        folder,
        "SELECT r.name, e.coalition, e.replicate, p.name, v.value FROM property_values v "
        "JOIN evaluations e ON e.id = v.evaluation_id JOIN recipes r ON r.id = e.recipe_id "
        "JOIN properties p ON p.id = v.property_id WHERE e.status = 'done'",
    )
    values = {key: None if value is None else struct.pack("<d", value) for *key, value in found for key in [tuple(key)]}
    assert len(values) == len(found)  # each was recorded once
    return values


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "diffcredit", *map(str, arguments)]


def run_here(file: Path) -> list[Any]:
    """Runs the study in this process, all of it in one thread; the evaluations it made."""
    from diffcredit.execution import InProcess
    from diffcredit.execution.threads import limited_threads
    from diffcredit.study.study import Study

    with limited_threads(1):
        return list(Study.load(file).evaluate(InProcess()))
