"""Retraining from scratch: what the other ways approximate."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diffcredit.diffusion.protocol import DiffusionModel
from diffcredit.diffusion.settings import PositiveInt, Training
from diffcredit.diffusion.training import train
from diffcredit.retraining.protocol import Ground, Rehearsal
from diffcredit.seeds import derive_seed


@dataclass
class FromScratch:
    """Trains an untrained network on the coalition's images as the base model was trained, or for ``steps``."""

    steps: PositiveInt | None = None

    weights = ""

    def prepare(self, ground: Ground) -> None:
        self._ground = ground
        self._training = self.training(ground.training)
        self._data = ground.base.encode(ground.contributions.images, ground.contributions.captions)

    def training(self, base: Training) -> Training:
        return dataclasses.replace(base, steps=self.steps or base.steps)

    def rehearse(self, untrained: DiffusionModel, training: Training) -> Rehearsal:
        return Rehearsal(untrained, None, self.training(training))

    def models_for(self, coalitions: NDArray[np.bool_], seeds: Sequence[int]) -> Iterator[DiffusionModel]:
        for coalition, seed in zip(coalitions, seeds, strict=True):
            if not coalition.any():
                yield self._ground.untrained(self._ground.base)
                continue
            model = self._ground.base.untrained(derive_seed(seed, "initial weights"))
            train(model, self._data.select(self._ground.contributions.of(coalition)), self._training, seed=seed)
            yield model
