"""Fine-tuning on a coalition's images, from the base model or from any other start."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Gt, Le
from numpy.typing import NDArray

from diffcredit.diffusion.protocol import DiffusionModel
from diffcredit.diffusion.settings import PositiveInt, Training
from diffcredit.diffusion.training import train
from diffcredit.retraining.protocol import Ground, Rehearsal


@dataclass
class FineTune:
    """Fine-tunes the base model for ``steps`` on the coalition's images.

    By default the rate is annealed to zero and the last quarter of the weights is averaged: another seed then
    changes the result far less at the same cost (the paper's recipe is ``schedule: constant`` and
    ``average_tail: null``). Batch size and rate are the base model's unless given. There is no warm-up, and
    what is measured is the model that was fine-tuned, not an average with the base model.
    """

    steps: PositiveInt = 1000
    batch_size: PositiveInt | None = None
    learning_rate: Annotated[float, Gt(0)] | None = None
    schedule: Literal["constant", "cosine"] = "cosine"
    average_tail: Annotated[float, Gt(0), Le(1)] | None = 0.25

    def prepare(self, ground: Ground) -> None:
        self.start_from(ground.base, ground)

    def start_from(self, start: DiffusionModel, ground: Ground) -> None:
        """Makes ``start`` the model that every coalition is fine-tuned from."""
        self._start, self._ground = start, ground
        self._data = start.encode(ground.contributions.images, ground.contributions.captions)
        self._training = self.training(ground.training)
        self.weights = start.fingerprint

    def training(self, base: Training) -> Training:
        """The base model's training settings with this fine-tuning's in their place."""
        return dataclasses.replace(
            base,
            steps=self.steps,
            batch_size=self.batch_size or base.batch_size,
            learning_rate=self.learning_rate or base.learning_rate,
            schedule=self.schedule,
            ema=None,
            average_tail=self.average_tail,
        )

    def rehearse(self, untrained: DiffusionModel, training: Training) -> Rehearsal:
        return Rehearsal(untrained, None, self.training(training))

    def models_for(self, coalitions: NDArray[np.bool_], seeds: Sequence[int]) -> Iterator[DiffusionModel]:
        for coalition, seed in zip(coalitions, seeds, strict=True):
            if not coalition.any():
                yield self._ground.untrained(self._start)
                continue
            model = self._start.clone()
            train(model, self._data.select(self._ground.contributions.of(coalition)), self._training, seed=seed)
            yield model
