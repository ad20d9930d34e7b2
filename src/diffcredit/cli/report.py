"""``diffcredit report``: the HTML report of a study."""

from typing import TYPE_CHECKING

from diffcredit.cli.console import Bars, StudyArgument, say

if TYPE_CHECKING:
    from diffcredit.report import CreditTable
    from diffcredit.study.study import Study


def report(study: StudyArgument) -> None:
    """Write report.html and credits.csv from all evaluations so far."""
    from diffcredit.cli.run import stopping_gently
    from diffcredit.study.study import Study

    with stopping_gently(), Bars() as bars:
        loaded = Study.load(study, bars)
        write_results(loaded)
    say(f"Report: {loaded.folder / 'report.html'}")


def write_results(study: "Study", *, retrain: bool = True) -> "tuple[CreditTable, ...]":
    """Writes the study's report.html and credits.csv; its credit tables. ``retrain``: also a model whose images the
    report shows, if they are not kept from before."""
    from diffcredit.report import write_credits_csv, write_report
    from diffcredit.report.composing import compose

    filled = compose(study, retrain=retrain)
    write_credits_csv(filled.tables, study.folder / "credits.csv")
    write_report(filled, study.folder / "report.html")
    return filled.tables
