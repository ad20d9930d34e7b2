"""Fine-tuning on a coalition's images, from the base model or from any other start."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Gt, Le
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.fast.sizes import fleet_size
from diffcredit.diffusion.protocol import DiffusionModel
from diffcredit.diffusion.settings import Annealing, Count, PositiveInt, Training
from diffcredit.retraining.protocol import Ground, Rehearsal, in_fleets


@dataclass
class FineTune:
    """Fine-tunes the base model for ``steps`` on the coalition's images.

    By default the rate is annealed to zero and the last quarter of the weights is averaged: another seed then
    changes the result far less at the same cost (the paper's recipe is ``schedule: constant`` and
    ``average_tail: null``). Batch size and rate are the base model's unless given. There is no warm-up, and
    what is measured is the model that was fine-tuned, not an average with the base model.

    Once prepared, ``start`` is the model that every coalition starts from, ``settings`` how it is fine-tuned, and
    ``ground`` what was prepared on.
    """

    steps: PositiveInt = 1000
    batch_size: Count | None = None
    learning_rate: Annotated[float, Gt(0)] | None = None
    schedule: Annealing = "cosine"
    average_tail: Annotated[float, Gt(0), Le(1)] | None = 0.25

    def prepare(self, ground: Ground) -> None:
        self.start_from(ground.base, ground)

    def start_from(self, start: DiffusionModel, ground: Ground) -> None:
        """Makes ``start`` the model that every coalition is fine-tuned from."""
        self.start, self.ground = start, ground
        self.settings = self.training(ground.training)
        self.weights = start.fingerprint
        self._data = ground.data()
        self.at_once = fleet_size(self.begin(seed=0), self.settings)

    def training(self, base: Training) -> Training:
        """The base model's training settings with this fine-tuning's in their place."""
        return dataclasses.replace(
            base,
            steps=self.steps,
            batch_size=self.batch_size or base.batch_size,
            learning_rate=self.learning_rate or base.learning_rate,
            schedule=self.schedule,
            warmup_steps=0,
            ema=None,
            average_tail=self.average_tail,
        )

    def rehearse(self, start: DiffusionModel, training: Training, contributions: Contributions) -> Rehearsal:
        return Rehearsal(start, None, self.training(training), together=True)

    def models_for(self, coalitions: NDArray[np.bool_], seeds: Sequence[int]) -> Iterator[DiffusionModel]:
        models = in_fleets(
            self.ground, self.start, coalitions, seeds, self.at_once, self.begin, self._data, self.settings
        )
        for coalition, model in zip(coalitions, models, strict=True):
            yield self.end(model) if coalition.any() else model

    def begin(self, seed: int) -> DiffusionModel:
        """What is trained for a coalition."""
        return self.start.clone()

    def end(self, model: DiffusionModel) -> DiffusionModel:
        """What was trained, as the coalition's model."""
        return model
