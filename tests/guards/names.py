"""All that the guards ask of diffcredit. Where a function moves or gets another name, only this file changes."""

import shutil
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import diffcredit
from diffcredit.baselines.study import run_baselines
from diffcredit.coalitions import DESIGNS
from diffcredit.execution import InProcess
from diffcredit.execution.threads import limited_threads
from diffcredit.ledger.purposes import PURPOSES
from diffcredit.ledger.records import STATUSES
from diffcredit.ledger.tables import SCHEMA_VERSION, metadata
from diffcredit.report.composing import coalition_images
from diffcredit.report.standings import write_credits_csv
from diffcredit.report.tables import credit_tables
from diffcredit.retraining import RETRAININGS
from diffcredit.study import Study
from diffcredit.study.pilot import pilot_tasks
from diffcredit.study.quality import compare
from diffcredit.study.reserved import truth_tasks
from diffcredit.util.artifacts import canonical_json, fingerprint, fingerprint_arrays
from diffcredit.util.seeds import derive_seed
from diffcredit.validation.data import ValidationData
from diffcredit.validation.parts import unlearning

__all__ = [
    "DESIGNS",
    "PURPOSES",
    "RETRAININGS",
    "SCHEMA_VERSION",
    "STATUSES",
    "Study",
    "base_identity",
    "canonical_json",
    "derive_seed",
    "fingerprint",
    "fingerprint_arrays",
    "recipe_settings",
]

SOURCE = Path(diffcredit.__file__).parent


def base_identity(study: Study) -> str:
    return study.prepared.base_identity


def recipe_settings(study: Study) -> dict[str, Any]:
    return study.recipe.settings


def run(study: Study) -> None:
    """Prepares and evaluates the study in this process, and writes its credits."""
    with limited_threads(1):
        study.prepare()
        compare(study)
        list(study.evaluate(InProcess()))
        write_credits_csv(credit_tables(study), study.folder / "credits.csv")


def prepare(study: Study) -> None:
    """Makes what evaluations start from, without any of them."""
    with limited_threads(1):
        study.prepare()
        study.surrogates.prepare()


def make_more(study: Study, coalition: str, methods: Iterable[str]) -> None:
    """Further files: the pictures of a coalition, and baselines."""
    with limited_threads(1):
        coalition_images(study, coalition)
        run_baselines(study, [{"name": name} for name in methods])


def make_replicate(study: Study) -> None:
    """A second base model, from another initialisation."""
    with limited_threads(1):
        study.prepared.replicate(1)


def records(study: Study) -> tuple[list[Any], list[Any]]:
    """The ledger's recipes and properties."""
    with study.ledger(create=False) as ledger:
        return ledger.recipes(study.name), ledger.properties(study.name)


def audit(study: Study, head: str | None) -> Any:
    with study.ledger(create=False) as ledger:
        return ledger.audit(study.name, head)


def design_tasks(study: Study, count: int) -> list[Any]:
    """The endpoints, and the first ``count`` tasks of the design."""
    schedule = study.schedule()
    return [*schedule.endpoints, *islice(schedule.coalitions(), count)]


def other_tasks(study: Study) -> dict[str, list[Any]]:
    """The tasks of the pilot, of the truth and of the validation."""
    data = ValidationData(study)
    own, scratch = unlearning.work(data)
    return {
        "pilot": pilot_tasks(study.config, study.contributions.n),
        "truth": truth_tasks(study.config, study.contributions.n),
        "leave one out": list(data.leave_one_out(study.recipe).tasks),
        "unlearning": list(own.tasks),
        "unlearning from scratch": list(scratch.tasks),
    }


def ledger_columns() -> dict[str, list[str]]:
    return {
        table.name: [f"{column.name} {column.type}" for column in table.columns] for table in metadata.sorted_tables
    }


def cifar20(archive: str, folder: Path) -> Study:
    """A recorded CIFAR-20 study, restored in ``folder``."""
    from benchmarks.cifar20.record import MODELS, RECORD, SURROGATES, restored

    study = restored(RECORD / archive, folder)
    for file in (RECORD / SURROGATES).glob("*.json"):
        shutil.copy(file, folder / MODELS / file.name)
    return study
