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

    @property
    def after_training(self) -> float:
        """Seconds that images and their properties take: of K models made at once, those of each but the last are
        measured while the next one's are made, so K times it is s + (K − 1) max(s, m) + m."""
        longer, shorter = sorted((self.sampling, self.measuring), reverse=True)
        return longer + shorter / self.at_once

    @property
    def seconds(self) -> float:
        """Of one evaluation among others."""
        return self.training + self.after_training

    def of_all(self, count: int, workers: int) -> float:
        """Until ``workers`` have made ``count`` of them. A fleet takes as long where places in it are empty."""
        fleets = math.ceil(count / (self.at_once * workers))
        return fleets * self.at_once * self.training + count * self.after_training / workers
