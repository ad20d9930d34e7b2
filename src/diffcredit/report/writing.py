"""Writing a study's results: ``report.html`` and ``credits.csv``."""

from typing import TYPE_CHECKING

from diffcredit.report import CreditTable, write_credits_csv, write_report
from diffcredit.report.composing import compose

if TYPE_CHECKING:
    from diffcredit.study.study import Study


def write_results(study: "Study", *, retrain: bool = True) -> tuple[CreditTable, ...]:
    """Write both files into the study's results folder, and return its credit tables.

    ``retrain``: also retrain a model whose images the report shows, where they are not cached.
    """
    filled = compose(study, retrain=retrain)
    write_credits_csv(filled.tables, study.folder / "credits.csv")
    write_report(filled, study.folder / "report.html")
    return filled.tables
