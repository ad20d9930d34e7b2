"""Fine-tuning on a coalition's images, from the base model or from any other start."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Gt, Le
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.protocol import DiffusionModel
from diffcredit.diffusion.settings import Annealing, Count, PositiveInt, Training
from diffcredit.diffusion.training import train
from diffcredit.retraining.protocol import Ground, Rehearsal, one_by_one


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
        return Rehearsal(start, None, self.training(training))

    def models_for(self, coalitions: NDArray[np.bool_], seeds: Sequence[int]) -> Iterator[DiffusionModel]:
        return one_by_one(self.ground, self.start, coalitions, seeds, self.model_for)

    def model_for(self, coalition: NDArray[np.bool_], seed: int) -> DiffusionModel:
        """The model of a coalition of somebody, an (n,) boolean vector."""
        return self.fine_tuned(self.start.clone(), coalition, seed)

    def fine_tuned(self, model: DiffusionModel, coalition: NDArray[np.bool_], seed: int) -> DiffusionModel:
        """``model``, trained on the coalition's images as the settings say."""
        train(model, self._data.select(self.ground.contributions.of(coalition)), self.settings, seed=seed)
        return model
