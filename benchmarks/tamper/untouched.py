"""The studies that are tampered with, made in seconds: nothing is trained, their values are made up.

The study that is read has a surrogate, a policy, a payout and statements. A second one, with other worths, lies in the
same ledger, so that rows can change places between studies.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from PIL import Image

from diffcredit.coalitions import decode
from diffcredit.execution import Task
from diffcredit.ledger import Evaluation, Ledger, PropertyRecord, RecipeRecord, Value
from diffcredit.payout.paying import recorded_payout
from diffcredit.report.statements import write_study_statements
from diffcredit.study.entered import enter_stated
from diffcredit.study.manifest import enter_images, enter_terms
from diffcredit.study.published import publish
from diffcredit.study.study import Study

NAME, OTHER = "tampered", "other"
WORTHS = {"ann": 4.0, "bob": 2.5, "cy": 1.0, "dee": -1.0, "eve": 0.5}
PROPERTIES = {"colourfulness": {"percentile": None}, "heldout_loss": {"time_steps": 2, "seed": 0, "batch_size": 256}}
EVALUATIONS, FEW = 40, 10
NOISE = 0.1
SETTINGS: dict[str, Any] = {
    "name": NAME,
    "results": "results",
    "device": "cpu",
    "contributions": {"path": "images", "resolution": 16, "holdout": 0.34},
    "model": {"preset": "tiny", "train": {"steps": 2, "batch_size": 8, "learning_rate": 1e-3}},
    "retraining": {"method": "sparsified", "recover_steps": 2, "steps": 1},
    "sampling": {"steps": 2, "images": 4},
    "properties": ["colourfulness", {"name": "heldout_loss", "time_steps": 2}],
    "design": {"full_replicates": 2},
    "stop": {"evaluations": EVALUATIONS},
    "surrogates": ["real_data"],
    "payout": {"property": "colourfulness", "fixed": "equal", "merit": "help", "r": 0.4, "currency": "EUR"},
}

OTHER_CHANGES = {"name": OTHER, "ledger": "../study/results/ledger.db", "stop": {"evaluations": FEW}}


@dataclass(frozen=True)
class Untouched:
    """A study file, and the head of its ledger."""

    file: Path
    head: str

    @property
    def ledger(self) -> Path:
        return self.file.parent / "results" / "ledger.db"


def make(folder: Path) -> Untouched:
    """Write both studies below ``folder``, evaluate them and pay by the first; return that."""
    second = write_study(folder / "other", OTHER_CHANGES)
    file = write_study(folder / "study", {})
    evaluate(Study.load(file), WORTHS, seed=1)
    evaluate(Study.load(second), {name: 3 - worth for name, worth in WORTHS.items()}, seed=2)
    study = Study.load(file)
    study.payout(pool="1000.00")
    recorded = recorded_payout(study)
    write_study_statements(study, recorded)
    return Untouched(file, recorded.head)


def write_study(folder: Path, changes: Mapping[str, Any]) -> Path:
    """Write ``study.yaml`` and images of every contributor, no two of them equal."""
    random = np.random.default_rng(0)
    for name in WORTHS:
        (folder / "images" / name).mkdir(parents=True)
        for number in range(3):
            pixels = random.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "images" / name / f"{number}.png")
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump({**SETTINGS, **changes}, sort_keys=False), encoding="utf-8")
    return file


def evaluate(study: Study, worths: Mapping[str, float], seed: int) -> None:
    """Enter what a run enters first, and made-up evaluations until the study is finished. One of them fails once, and
    one value is missing."""
    random = np.random.default_rng(seed)
    given = np.array([worths[name] for name in study.contributions.contributors])
    with study.ledger() as ledger:
        _register(study, ledger)
        _enter_surrogate(study, given * 0.8, random)
        number = 0
        while tasks := list(study.schedule().pending()):
            for task in tasks:
                number += 1
                if number == 5:
                    ledger.record(study.name, study.recipe.name, _failed(task))
                value = float(given[decode(task.coalition)].sum() + NOISE * random.normal())
                ledger.record(study.name, study.recipe.name, _done(task, value, measured=number != 9))
    publish(study)


def _register(study: Study, ledger: Ledger) -> None:
    ledger.register_study(study.name, {"contributors": list(study.contributions.contributors)})
    enter_stated(study, ledger, list(PROPERTIES))
    ledger.register_recipe(study.name, RecipeRecord(study.recipe.name, study.recipe.settings))
    for name, options in PROPERTIES.items():
        ledger.register_property(study.name, PropertyRecord(name, {"name": name, **options}, name == "colourfulness"))
    enter_images(study, ledger, study.contributions)
    enter_terms(study, ledger)


def _enter_surrogate(study: Study, worths: NDArray[np.float64], random: np.random.Generator) -> None:
    """Enter values of the surrogate at every coalition: those of a game like the study's, with noise."""
    for values in study.surrogates._values.values():
        for prop, sign in (("colourfulness", 1), ("heldout_loss", -1)):
            table = {
                "".join(map(str, members)): sign * float(worths @ members + NOISE * random.normal())
                for members in itertools.product((0, 1), repeat=len(worths))
            }
            values._keep_values(prop, table)
    del vars(study.surrogates)["_values"]  # to be read from the ledger


def _done(task: Task, value: float, *, measured: bool) -> Evaluation:
    loss = Value("heldout_loss", -value) if measured else Value("heldout_loss", None, error="ValueError: not measured")
    return _evaluation(task, "done", (Value("colourfulness", value, 0.05), loss), None)


def _failed(task: Task) -> Evaluation:
    return _evaluation(task, "failed", (), "Traceback\nValueError: lost")


def _evaluation(task: Task, status: Any, values: tuple[Value, ...], error: str | None) -> Evaluation:
    return Evaluation(
        task.coalition,
        task.replicate,
        task.purpose,
        status,
        values,
        error,
        {"device": "cpu", "threads": 1},
        {"training": 3.0, "sampling": 1.0},
        "worker",
        "2025-01-01T00:00:00+00:00",
        "2025-01-01T00:00:04+00:00",
    )
