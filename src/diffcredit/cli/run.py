"""``diffcredit run``: run or resume a study."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from diffcredit.cli.console import Bars, FailureReport, console, say, stopping_gently, table
from diffcredit.cli.near_copies import tell_near_copies
from diffcredit.cli.opened import opened
from diffcredit.cli.options import StudyArgument
from diffcredit.cli.signing import SignOption, key_of, sign_results
from diffcredit.study.observer import Observer
from diffcredit.util.sanitize import single_line

if TYPE_CHECKING:
    from diffcredit.contributions import Contributions
    from diffcredit.ledger import Evaluation
    from diffcredit.study.quality import Comparison
    from diffcredit.study.study import Study
    from diffcredit.study.workers import Workers

MOST_LINES = 5  # duplicates that are listed


def run(study: StudyArgument, sign: SignOption = None, *, where: "Workers") -> None:
    """Run a study, or resume it: train, prune, evaluate coalitions, write credits.csv and report.html."""
    key = key_of(sign)
    with stopping_gently(), Bars() as bars, opened(study, bars) as loaded:
        run_and_report(loaded, where)
        sign_results(loaded, key, [loaded.folder / "report.html"])


def run_and_report(study: "Study", where: "Workers") -> None:
    """Run the study from its present state to its report, and print the credits."""
    from diffcredit.cli.credit_tables import print_results
    from diffcredit.report.composing import write_results
    from diffcredit.study.run import run_study
    from diffcredit.study.workers import make_executor

    printer = _Printer(study)
    result = run_study(study, make_executor(study, where), printer)
    printer.failures.summarize()
    say(f"Enough: {result.reason}.")
    print_results(study, write_results(study))


class _Printer(Observer):
    """Prints what a run reports while it runs."""

    def __init__(self, study: "Study") -> None:
        self._study, self.failures = study, FailureReport()

    def on_contributions(self, contributions: "Contributions") -> None:
        say(f"{self._study.name}: {contributions.summary}, {len(contributions.heldout):,} held out")
        for line in contributions.skipped:
            say(f"skipped {single_line(line)}")
        for line in contributions.left_out:
            say(f"left out {line}")
        duplicates = contributions.duplicates()
        for duplicate in duplicates[:MOST_LINES]:
            names = ", ".join(map(single_line, duplicate.names))
            say(f"the same image from {', '.join(duplicate.contributors)}: {names}")
        if len(duplicates) > MOST_LINES:
            say(f"and {len(duplicates) - MOST_LINES} more images from several contributors")
        tell_near_copies(self._study)

    def on_quality(self, comparisons: "Sequence[Comparison]") -> None:
        if not comparisons:
            return
        rows = [
            (row.name, f"{row.base:.4g}", f"{row.start:.4g}", f"{row.untrained:.4g}", _lost(row.lost))
            for row in comparisons
        ]
        columns = ("property", "base model", "pruned", "untrained", "lost")
        console.print(table(columns, rows, title="The pruned model, before any coalition"))

    def on_surrogates(self, without: Sequence[str]) -> None:
        for name in without:
            say(f"no surrogate stands in for {name}: credited by its evaluations alone")

    def on_evaluation(self, evaluation: "Evaluation") -> None:
        self.failures.add(evaluation)


def _lost(share: float) -> str:
    return f"{100 * share:.0f} %" if share <= 1 else "over 100 %"
