"""How long evaluations take, from the times of their stages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from diffcredit.ledger import Evaluation


@dataclass(frozen=True)
class EvaluationTime:
    """Seconds of an evaluation's stages, where ``at_once`` coalitions' models are trained together; ``training`` is one
    model's share."""

    training: float
    sampling: float
    measuring: float
    at_once: int = 1

    @classmethod
    def of(cls, evaluations: Sequence[Evaluation]) -> Self:
        """Return the mean times of recorded evaluations."""
        parts = ("training", "sampling", "measuring")
        means = (sum(each.seconds.get(part, 0.0) for each in evaluations) / len(evaluations) for part in parts)
        fleets = [each.numerics.get("training", {}).get("fleet", 1) for each in evaluations]
        return cls(*means, at_once=max(fleets))

    def each(self, workers: int) -> float:
        """Return the seconds of one evaluation among many. A single worker that trains fleets measures one fleet while
        it makes the next: the longer time counts."""
        if self._overlaps(workers):
            return max(self.training + self.sampling, self.measuring)
        return self.training + self._after_training

    def of_all(self, count: int, workers: int) -> float:
        """Return the seconds until ``workers`` have made ``count`` of them. A fleet that is not full takes as long."""
        fleets = math.ceil(count / (self.at_once * workers))
        making = fleets * self.at_once * self.training
        if not self._overlaps(workers) or not count:
            return making + count * self._after_training / workers
        last = count - (fleets - 1) * self.at_once
        left = self.measuring + (last - 1) * max(0.0, self.measuring - self.sampling)  # once all images are made
        first = self.at_once * self.training + self.sampling  # until there is something to measure
        return max(making + count * self.sampling + left, first + count * self.measuring)

    def _overlaps(self, workers: int) -> bool:
        return workers == 1 and self.at_once > 1

    @property
    def _after_training(self) -> float:
        """Seconds of sampling s and measuring m per evaluation: of K models made together, each but the last is
        measured while the next is sampled, so K times it is s + (K − 1) max(s, m) + m."""
        longer, shorter = sorted((self.sampling, self.measuring), reverse=True)
        return longer + shorter / self.at_once
