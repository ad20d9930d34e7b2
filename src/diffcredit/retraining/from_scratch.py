"""Retraining from scratch: what the other ways approximate."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.protocol import DiffusionModel
from diffcredit.diffusion.settings import PositiveInt, Training
from diffcredit.diffusion.training import train
from diffcredit.retraining.protocol import Ground, Rehearsal, one_by_one
from diffcredit.seeds import derive_seed


@dataclass
class FromScratch:
    """Trains an untrained network on the coalition's images as the base model was trained, or for ``steps``.

    Of a text-to-image model, what is untrained is the adapter.
    """

    steps: PositiveInt | None = None

    weights = ""
    fine_tunes: ClassVar[bool] = False

    def prepare(self, ground: Ground) -> None:
        self._ground = ground
        self._training = self.training(ground.training)
        self._data = ground.data()

    def training(self, base: Training) -> Training:
        steps = self.steps or base.steps
        return dataclasses.replace(base, steps=steps, warmup_steps=min(base.warmup_steps, steps - 1))

    def rehearse(self, start: DiffusionModel, training: Training, contributions: Contributions) -> Rehearsal:
        return Rehearsal(start, None, self.training(training))

    def models_for(self, coalitions: NDArray[np.bool_], seeds: Sequence[int]) -> Iterator[DiffusionModel]:
        return one_by_one(self._ground, self._ground.base, coalitions, seeds, self._model_for)

    def _model_for(self, coalition: NDArray[np.bool_], seed: int) -> DiffusionModel:
        model = self._ground.base.untrained(derive_seed(seed, "initial weights"))
        train(model, self._data.select(self._ground.contributions.of(coalition)), self._training, seed=seed)
        return model
