"""When a training has failed."""

from diffcredit.diffusion.settings import Training
from diffcredit.errors import DiffcreditError


class TrainingDiverged(DiffcreditError):
    """The loss or the weights are no longer finite numbers."""


def diverged(what: str, settings: Training) -> TrainingDiverged:
    """That ``what`` happened at a step."""
    return TrainingDiverged(
        f"{what} of {settings.steps}; a learning rate under {settings.learning_rate:g} usually helps"
    )
