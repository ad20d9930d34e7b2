"""Training on a coalition's images: from scratch, which the other methods approximate, or fine-tuning of a start."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Gt, Le
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.fast.eligibility import fleet_size
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.settings import Annealing, Count, PositiveInt, Training
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


@dataclass
class FineTune(Retraining):
    """Fine-tune the base model for ``steps`` on the coalition's images.

    By default the learning rate is annealed to zero and the weights of the last quarter of the steps are averaged: the
    result then depends far less on the seed, at the same cost (the paper's recipe is ``schedule: constant`` and
    ``average_tail: null``). Batch size and learning rate are the base model's by default. There is no warm-up and no
    moving average (``ema``).

    Once prepared, ``start`` is the model that every coalition starts from, ``settings`` are those of its fine-tuning,
    and ``ground`` is the context it was prepared with.
    """

    steps: PositiveInt = 1000
    batch_size: Count | None = None
    learning_rate: Annotated[float, Gt(0)] | None = None
    schedule: Annealing = "cosine"
    average_tail: Annotated[float, Gt(0), Le(1)] | None = 0.25

    def prepare(self, context: RetrainingContext) -> None:
        self.start_from(context.base, context)

    def start_from(self, start: DiffusionModel, context: RetrainingContext) -> None:
        """Make ``start`` the model that every coalition is fine-tuned from."""
        self.start, self.ground = start, context
        self.settings = self.training(context.training)
        self.weights = start.fingerprint
        self._data = context.data()
        self.at_once = fleet_size(self.begin(seed=0), self.settings)

    def training(self, base: Training) -> Training:
        """Return the training settings of the base model, ``base``, changed to those of this fine-tuning."""
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
        """Return the model that a coalition trains."""
        return self.start.clone()

    def end(self, model: DiffusionModel) -> DiffusionModel:
        """Return the coalition's model, given the one it trained."""
        return model
