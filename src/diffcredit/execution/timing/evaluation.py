"""How long evaluations take, from the times of their parts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from diffcredit.ledger import Evaluation


@dataclass(frozen=True)
class EvaluationTime:
    """Seconds of an evaluation's parts, where so many coalitions' models are made ``at_once``. ``training`` is one
    model's share of that."""

    training: float
    sampling: float
    measuring: float
    at_once: int = 1

    @classmethod
    def of(cls, evaluations: Sequence[Evaluation]) -> Self:
        """As recorded, on average."""
        parts = ("training", "sampling", "measuring")
        means = (sum(each.seconds.get(part, 0.0) for each in evaluations) / len(evaluations) for part in parts)
        fleets = [each.numerics.get("training", {}).get("fleet", 1) for each in evaluations]
        return cls(*means, at_once=max(fleets))

    def each(self, workers: int) -> float:
        """Seconds of one evaluation among many. A single worker that makes fleets measures one while it makes the
        next: the longer counts."""
        if self._overlaps(workers):
            return max(self.training + self.sampling, self.measuring)
        return self.training + self._after_training

    def of_all(self, count: int, workers: int) -> float:
        """Until ``workers`` have made ``count`` of them. A fleet takes as long where places in it are empty."""
        fleets = math.ceil(count / (self.at_once * workers))
        making = fleets * self.at_once * self.training
        if not self._overlaps(workers) or not count:
            return making + count * self._after_training / workers
        last = count - (fleets - 1) * self.at_once
        left = self.measuring + (last - 1) * max(0.0, self.measuring - self.sampling)  # when all images are there
        first = self.at_once * self.training + self.sampling  # when there is something to measure
        return max(making + count * self.sampling + left, first + count * self.measuring)

    def _overlaps(self, workers: int) -> bool:
        return workers == 1 and self.at_once > 1

    @property
    def _after_training(self) -> float:
        """Seconds that images and their properties take: of K models made at once, those of each but the last are
        measured while the next one's are made, so K times it is s + (K − 1) max(s, m) + m."""
        longer, shorter = sorted((self.sampling, self.measuring), reverse=True)
        return longer + shorter / self.at_once
