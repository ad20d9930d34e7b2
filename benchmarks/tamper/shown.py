"""Gather all that a reader is shown of a study. Each part is read anew, as a command does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from diffcredit.errors import UserError
from diffcredit.payout.paying import recorded_payout
from diffcredit.report.standings import credits_csv
from diffcredit.report.statements import write_study_statements
from diffcredit.report.tables import credit_tables
from diffcredit.study.study import Study

Shown = dict[str, str]
"""Texts of what is shown, by what they are."""


def shown_credits(file: Path) -> Shown:
    """Values, intervals, help, ranks, shares, contributors' names, and the verdict on each property."""
    tables = credit_tables(Study.load(file), shares=True)
    return {"credits": credits_csv(tables), **{f"table of {each.property}": repr(each) for each in tables}}


def shown_payout(file: Path) -> Shown:
    """The last payout with every row, and each contributor's statement, as a page and as JSON. A statement lists the
    images only where they are those that were paid for; one that does not is another statement."""
    study = Study.load(file)
    recorded = recorded_payout(study)
    found = {"payout": repr(recorded)}
    for page in write_study_statements(study, recorded):
        data = page.with_suffix(".json").read_text(encoding="utf-8")
        about = f"statement of {page.stem} {'with' if 'images' in json.loads(data) else 'without'} images"
        found |= {f"{about}, page": page.read_text(encoding="utf-8"), f"{about}, JSON": data}
    return found


def shown_status(file: Path) -> Shown:
    """How far the study is, what it cost, what failed, and the head."""
    study = Study.load(file)
    status = study.status()
    counts: list[Any] = [
        (each.name, each.done, each.others, each.failed, each.total, each.worker_hours) for each in status.recipes
    ]
    workers = [(each.name, each.recipe, each.done, each.failed, each.mean_seconds) for each in status.workers]
    with study.ledger(create=False) as ledger:
        head = ledger.head(study.name)
    return {"status": repr((counts, status.rule, status.failures, workers)), "head": repr(head)}


PARTS: tuple[Callable[[Path], Shown], ...] = (shown_credits, shown_payout, shown_status)


def shown(file: Path) -> Shown:
    """Return all that is shown of a study that nobody refuses."""
    return {name: text for part in PARTS for name, text in part(file).items()}


def audited(file: Path, head: str) -> Shown:
    """Compare a study with the ``head`` that was noted, as ``diffcredit verify --head`` does; show nothing."""
    study = Study.load(file)
    with study.ledger(create=False) as ledger:
        if problems := ledger.audit(study.name, head).problems:
            raise UserError(problems[0])
    return {}
