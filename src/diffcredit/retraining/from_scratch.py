"""Retraining from scratch, which the other methods approximate."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.fast.eligibility import fleet_size
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.settings import PositiveInt, Training
from diffcredit.retraining.base import Rehearsal, Retraining, RetrainingContext, in_fleets
from diffcredit.util.seeds import derive_seed


@dataclass
class FromScratch(Retraining):
    """Train an untrained network (of a text-to-image model, the adapter) on the coalition's images as the base model
    was trained, or for ``steps``."""

    steps: PositiveInt | None = None

    weights = ""
    fine_tunes: ClassVar[bool] = False

    def prepare(self, context: RetrainingContext) -> None:
        self._context = context
        self._training = self.training(context.training)
        self._data = context.data()
        self.at_once = fleet_size(context.base, self._training)

    def training(self, base: Training) -> Training:
        steps = self.steps or base.steps
        return dataclasses.replace(base, steps=steps, warmup_steps=min(base.warmup_steps, steps - 1))

    def rehearse(self, start: DiffusionModel, training: Training, contributions: Contributions) -> Rehearsal:
        return Rehearsal(start, None, self.training(training), together=True)

    def models_for(self, coalitions: NDArray[np.bool_], seeds: Sequence[int]) -> Iterator[DiffusionModel]:
        base = self._context.base
        return in_fleets(self._context, base, coalitions, seeds, self.at_once, self._begin, self._data, self._training)

    def _begin(self, seed: int) -> DiffusionModel:
        return self._context.base.untrained(derive_seed(seed, "initial weights"))
