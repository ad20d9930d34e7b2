"""Training on a coalition's images: from scratch, which the other methods approximate, or fine-tuning of a start."""

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from annotated_types import Gt, Le
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.fast.eligibility import fleet_size
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.settings import Annealing, Count, PositiveInt, Training
from diffcredit.diffusion.training import train_each
from diffcredit.retraining.base import Rehearsal, Retraining, RetrainingContext
from diffcredit.util.seeds import derive_seed


class Trained(Retraining):
    """A retraining that trains a model on each coalition's images, ``at_once`` of them together.

    Once prepared, ``start`` is the model that every coalition starts from, ``settings`` are those of its training, and
    ``context`` is the context it was prepared with.
    """

    def prepare(self, context: RetrainingContext) -> None:
        self.start_from(context.base, context)

    def start_from(self, start: DiffusionModel, context: RetrainingContext) -> None:
        """Make ``start`` the model that every coalition starts from."""
        self.start, self.context = start, context
        self.settings = self.training(context.training)
        self.weights = start.fingerprint
        self._data = context.data()
        self.at_once = fleet_size(self.begin(seed=0), self.settings)

    @abstractmethod
    def training(self, base: Training) -> Training:
        """Return the training settings of the base model, ``base``, changed to those of a coalition."""

    def rehearse(self, start: DiffusionModel, training: Training, contributions: Contributions) -> Rehearsal:
        return Rehearsal(start, None, self.training(training), together=True)

    def models_for(self, coalitions: NDArray[np.bool_], seeds: Sequence[int]) -> Iterator[DiffusionModel]:
        for first in range(0, len(seeds), self.at_once):
            images = [self.context.contributions.of(each) for each in coalitions[first : first + self.at_once]]
            nonempty = [place for place, rows in enumerate(images) if len(rows)]
            own = [seeds[first + place] for place in nonempty]
            models = [self.begin(seed) for seed in own]
            rows = [torch.from_numpy(images[place]) for place in nonempty]
            errors = train_each(models, self._data, rows, self.settings, seeds=own, at_once=self.at_once)
            made = dict(zip(nonempty, zip(models, errors, strict=True), strict=True))
            for place in range(len(images)):
                model, error = made.pop(place, (None, None))
                if error is not None:
                    raise error
                yield self.context.untrained(self.start) if model is None else self.end(model)

    def begin(self, seed: int) -> DiffusionModel:
        """Return the model that a coalition trains."""
        return self.start.clone()

    def end(self, model: DiffusionModel) -> DiffusionModel:
        """Return the coalition's model, given the one it trained."""
        return model


@dataclass
class FromScratch(Trained):
    """Train an untrained network (of a text-to-image model, the adapter) on the coalition's images as the base model
    was trained, or for ``steps``."""

    steps: PositiveInt | None = None

    fine_tunes: ClassVar[bool] = False

    def prepare(self, context: RetrainingContext) -> None:
        super().prepare(context)
        self.weights = ""

    def training(self, base: Training) -> Training:
        steps = self.steps or base.steps
        return dataclasses.replace(base, steps=steps, warmup_steps=min(base.warmup_steps, steps - 1))

    def begin(self, seed: int) -> DiffusionModel:
        return self.start.untrained(derive_seed(seed, "initial weights"))


@dataclass
class FineTune(Trained):
    """Fine-tune the base model for ``steps`` on the coalition's images.

    By default the learning rate is annealed to zero and the weights of the last quarter of the steps are averaged: the
    result then depends far less on the seed, at the same cost (the paper's recipe is ``schedule: constant`` and
    ``average_tail: null``). Batch size and learning rate are the base model's by default. There is no warm-up and no
    moving average (``ema``).
    """

    steps: PositiveInt = 1000
    batch_size: Count | None = None
    learning_rate: Annotated[float, Gt(0)] | None = None
    schedule: Annealing = "cosine"
    average_tail: Annotated[float, Gt(0), Le(1)] | None = 0.25

    def training(self, base: Training) -> Training:
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
