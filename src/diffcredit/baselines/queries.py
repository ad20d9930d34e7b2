"""The generated images, checked to be comparable with the training images, and the seeds and texts they came from."""

from typing import TYPE_CHECKING

from diffcredit.baselines.base import Evidence
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import UserError
from diffcredit.properties import Images

if TYPE_CHECKING:
    from diffcredit.diffusion.model import DiffusionModel


def comparable_queries(evidence: Evidence, method: str) -> Images:
    """Return the generated images; refuse ``method`` where their shape is not that of the training images."""
    generated, training = evidence.queries(method), evidence.contributions.images
    if generated.shape[1:] != training.shape[1:]:
        raise UserError(
            f"{method}: generated images of shape {generated.shape[1:]}; the training images' shape "
            f"{training.shape[1:]} is accepted"
        )
    return generated


def query_sampling(evidence: Evidence, method: str) -> Sampling:
    """Return how the generated images were sampled; refuse ``method`` where that is unknown."""
    if evidence.sampling is None or evidence.sampling.images < len(evidence.generated):
        raise UserError(f"{method}: needs to know how the {len(evidence.generated)} generated images were sampled")
    return evidence.sampling


def query_captions(evidence: Evidence, model: "DiffusionModel", method: str) -> tuple[str, ...] | None:
    """Return the prompt of each generated image, by its seed; None for a model without texts."""
    prompts = model.prompts
    if not prompts:
        return None
    seeds = query_sampling(evidence, method).seeds[: len(evidence.generated)]
    return tuple(prompts[seed % len(prompts)] for seed in seeds)
