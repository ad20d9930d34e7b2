"""Callbacks of a run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diffcredit.contributions import Contributions
    from diffcredit.ledger import Evaluation
    from diffcredit.study.quality import Comparison


class Observer:
    """Callbacks of a running study, called in the order of these methods; override those of interest. They run in the
    thread that called :meth:`Study.run`; an exception ends the run."""

    def on_contributions(self, contributions: "Contributions") -> None:
        """The images are loaded."""

    def on_quality(self, comparisons: "Sequence[Comparison]") -> None:
        """The pruned model was compared with the base model."""

    def on_surrogates(self, without: Sequence[str]) -> None:
        """The surrogates are measured; ``without`` are the properties that none stands in for."""

    def on_evaluation(self, evaluation: "Evaluation") -> None:
        """An evaluation, done or failed, is in the ledger."""
