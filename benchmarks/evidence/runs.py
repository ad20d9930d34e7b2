"""The record of the three runs: their ledgers and baselines, read as the contests that validation judges.

A model that is retrained from scratch does not know the base model. Where a property is the same in both ledgers (the
same settings and the same fitted state), what either of the first two runs has retrained from scratch is evidence for
both, and is entered in the other's ledger. The third run was for unlearning alone: of its images there is what
`diffcredit validate` made of them, the section in ``unlearning/``.
"""

import csv
import dataclasses
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from diffcredit.baselines import BaselineCredits
from diffcredit.baselines.selection import build_baselines
from diffcredit.baselines.study import StudyBaseline
from diffcredit.ledger import Ledger
from diffcredit.study.study import Study
from diffcredit.validation.data import ValidationData

HERE = Path(__file__).parent
LEDGERS = HERE / "ledgers"
UNLEARNING = HERE / "unlearning"
RUNS = (1, 2, 3)
SCRATCH = "from_scratch"


@contextmanager
def contests() -> Iterator[tuple[ValidationData, ...]]:
    """Of each run; the first two with what the other has retrained from scratch, the third without baselines."""
    with TemporaryDirectory() as folder:
        files = [Path(folder) / f"run-{run}.db" for run in RUNS]
        for run, file in zip(RUNS, files, strict=True):
            file.write_bytes(lzma.decompress((LEDGERS / f"run-{run}.db.xz").read_bytes()))
        study = Study.load(HERE / "study.yaml")
        with Ledger.open(files[0]) as one, Ledger.open(files[1]) as other:  # of older schemas: they get their chains
            share(study.name, one, other)
        tables = [baselines(study, LEDGERS / f"run-{run}-baselines.csv") for run in RUNS[:2]]
        yield tuple(
            ValidationData(study_on(study, file), baselines=each)
            for file, each in zip(files, (*tables, []), strict=True)
        )


def study_on(study: Study, ledger: Path) -> Study:
    """The same study with its record in another place."""
    return Study(study.config.model_copy(update={"ledger": str(ledger), "device": "cpu"}), study.file)


def share(study: str, one: Ledger, other: Ledger) -> None:
    """Enters in each ledger what only the other has retrained from scratch, for the properties that both have alike."""
    same = {record.name for record in one.properties(study) if record in other.properties(study)}
    given = [ledger.evaluations(study, SCRATCH, status="done") for ledger in (one, other)]
    for ledger, evaluations in zip((other, one), given, strict=True):
        for each in evaluations:
            values = tuple(value for value in each.values if value.property in same)
            ledger.record(study, SCRATCH, dataclasses.replace(each, values=values))


def baselines(study: Study, file: Path) -> list[StudyBaseline]:
    """The credits of every method in ``baselines.csv``, contributors in the ledger's order; their seconds are not
    in it."""
    methods = {name: method for name, _, method in build_baselines(study, ())}
    found: dict[tuple[str, str, str | None], list[float]] = {}
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            found.setdefault((row["method"], row["aggregation"], row["property"] or None), []).append(
                float(row["credit"])
            )
    return [
        StudyBaseline(
            methods[method].title,
            methods[method].category,
            prop,
            BaselineCredits(method, how, np.array(credits), seconds=float("nan")),
        )
        for (method, how, prop), credits in found.items()
    ]
