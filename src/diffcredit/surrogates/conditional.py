"""The base model sampled with each contributor's captions; a coalition's images follow its members' captions."""

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from diffcredit.contributions import Contributions
from diffcredit.diffusion.settings import Count
from diffcredit.errors import UserError
from diffcredit.surrogates.base import Material, Work
from diffcredit.surrogates.pools import PooledImages
from diffcredit.util.cache import artifact_name
from diffcredit.util.seeds import derive_seed

if TYPE_CHECKING:
    from diffcredit.diffusion.model import DiffusionModel


@dataclass
class Conditional(PooledImages):
    """Pools of images that the base model makes from each contributor's captions (SurrogateSHAP).

    The assumption: a coalition's model would make what the base model makes when given the coalition's captions. The
    model must follow the captions of its training images.
    """

    coalitions: Count = 1000

    def work(self, n: int, coalitions: int) -> Work:
        return Work(samplings=n)

    def prepare(self, material: Material) -> None:
        model, sampling = material.base(), asdict(material.sampling)
        prompts = captions_of(model, material.contributions)
        self.sample(
            material,
            [artifact_name("conditional", [model.fingerprint, sampling, texts]) for texts in prompts],
            lambda index: _following(model, prompts[index]),
            "sampling with the contributors' captions",
        )


def captions_of(model: "DiffusionModel", contributions: Contributions) -> list[list[str]]:
    """Return each contributor's captions, repeated ones too, in an order that does not depend on other contributors."""
    if not model.prompts:
        raise UserError("conditional sampling: the model follows no text; accepted: a text-to-image model")
    if model.prompt is not None or contributions.captions is None:
        raise UserError(
            "conditional sampling: one prompt for all images distinguishes no contributors; accepted: a model "
            "trained with the images' own captions"
        )
    order = sorted(range(len(contributions.names)), key=lambda row: derive_seed("prompt", contributions.names[row]))
    texts: list[list[str]] = [[] for _ in contributions.contributors]
    for row in order:
        texts[contributions.owner[row]].append(contributions.captions[row])
    if [] in texts:
        nobody = contributions.contributors[texts.index([])]
        raise UserError(f"conditional sampling: contributor {nobody!r} gave no image, hence no caption")
    return texts


def _following(model: Any, prompts: Sequence[str]) -> Any:
    """Return the same model, weights shared, with other prompts."""
    other = copy.copy(model)
    other.prompts = tuple(prompts)
    return other
