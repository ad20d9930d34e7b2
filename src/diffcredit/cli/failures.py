"""Failed evaluations and values, reported as they come and summed up at the end."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from diffcredit.cli.console import say
from diffcredit.util.sanitize import last_line

if TYPE_CHECKING:
    from diffcredit.ledger import Evaluation


class FailureReport:
    """Counts failures. ``recorded``: whether the ledger has them."""

    def __init__(self, *, recorded: bool = True) -> None:
        self._recorded = recorded
        self._failed = 0
        self._unmeasured: Counter[str] = Counter()

    def add(self, evaluation: "Evaluation") -> None:
        """Print a failed evaluation, and the first failed value of each property."""
        if evaluation.status == "failed":
            self._failed += 1
            say(f"coalition {evaluation.coalition} failed: {last_line(evaluation.error)}")
        for value in evaluation.values:
            if value.error:
                self._unmeasured[value.property] += 1
                if self._unmeasured[value.property] == 1:
                    say(f"coalition {evaluation.coalition}: {value.property} failed: {last_line(value.error)}")

    def summarize(self) -> None:
        """Print how many there were, and what happens next."""
        if self._failed:
            where = "the ledger has their errors, and " if self._recorded else ""
            say(f"{self._failed} evaluations failed; {where}the next run tries them again.")
        for name, count in self._unmeasured.items():
            say(f"{name} failed in {count} evaluations; the ledger has the errors, and diffcredit measure tries again.")


def report_failures(evaluations: "Iterable[Evaluation]", *, recorded: bool = True) -> None:
    """Go through all ``evaluations``, and print which failed."""
    report = FailureReport(recorded=recorded)
    for evaluation in evaluations:
        report.add(evaluation)
    report.summarize()
