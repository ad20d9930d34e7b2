"""The generated images beside the training images: of the same shape, with the seeds and texts that they came from."""

from typing import TYPE_CHECKING

from diffcredit.baselines.protocol import Evidence
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import UserError
from diffcredit.properties import Images

if TYPE_CHECKING:
    from diffcredit.diffusion.model import DiffusionModel


def comparable_queries(evidence: Evidence, method: str) -> Images:
    """The generated images, which must be of the training images' shape for ``method`` to compare them."""
    generated, training = evidence.queries(method), evidence.contributions.images
    if generated.shape[1:] != training.shape[1:]:
        raise UserError(
            f"{method}: generated images of shape {generated.shape[1:]}; the training images' shape "
            f"{training.shape[1:]} is accepted"
        )
    return generated


def query_sampling(evidence: Evidence, method: str) -> Sampling:
    """How the generated images were sampled, image j from its seed j, of which ``method`` has to know."""
    if evidence.sampling is None or evidence.sampling.images < len(evidence.generated):
        raise UserError(f"{method}: needs to know how the {len(evidence.generated)} generated images were sampled")
    return evidence.sampling


def query_captions(evidence: Evidence, model: "DiffusionModel", method: str) -> tuple[str, ...] | None:
    """The text that each generated image follows, by its seed; None of a model without texts."""
    prompts: tuple[str, ...] | None = getattr(model, "prompts", None)
    if not prompts:
        return None
    seeds = query_sampling(evidence, method).seeds[: len(evidence.generated)]
    return tuple(prompts[seed % len(prompts)] for seed in seeds)
