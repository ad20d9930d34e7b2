"""Gradient ascent: unlearn the removed contributors' images by raising their loss."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Gt
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.settings import Count, PositiveInt, Training
from diffcredit.diffusion.training import train
from diffcredit.retraining.base import OneByOne, Rehearsal, RetrainingContext
from diffcredit.retraining.pruning import Sparsity
from diffcredit.retraining.pruning.sparsity import rehearsal_of, start_of

CLIP = 1.0  # norm to which gradients are clipped: unlike descent, ascent does not converge


@dataclass
class GradientAscent(OneByOne):
    """Ascend the loss on the images of contributors *outside* the coalition, from the base or the ``sparse`` model.

    By default this takes one pass over them, ⌈removed / batch⌉ ``steps``; if they are fewer than a batch, each is seen
    several times, at different time steps. The learning rate is constant. Optimizer and batch size are the base model's
    (the published code ascends with Adam). The model of all contributors is the start itself.
    """

    learning_rate: Annotated[float, Gt(0)] = 1e-5
    steps: PositiveInt | None = None
    batch_size: Count | None = None
    sparse: Sparsity | None = None

    fine_tunes: ClassVar[bool] = False

    def prepare(self, context: RetrainingContext) -> None:
        self.start, self.ground = start_of(context, self.sparse), context
        self.weights = self.start.fingerprint
        self._data = context.data()

    def training(self, base: Training, removed: int) -> Training:
        """Return the settings of the ascent on ``removed`` images."""
        size = self.batch_size or base.batch_size
        return dataclasses.replace(
            base,
            steps=self.steps or math.ceil(removed / size),
            batch_size=size,
            learning_rate=self.learning_rate,
            schedule="constant",
            gradient_clip=CLIP,
            warmup_steps=0,
            ema=None,
            average_tail=None,
        )

    def rehearse(self, start: DiffusionModel, training: Training, contributions: Contributions) -> Rehearsal:
        """Half of the images stand for those outside a coalition."""
        half = math.ceil(len(contributions.images) / 2)
        return rehearsal_of(start, training, self.sparse, coalition=self.training(training, half))

    def model_for(self, coalition: NDArray[np.bool_], seed: int) -> DiffusionModel:
        model, removed = self.start.clone(), self.ground.contributions.of(~coalition)
        if len(removed):
            settings = self.training(self.ground.training, len(removed))
            train(model, self._data.select(removed), settings, seed=seed, ascend=True)
        return model
