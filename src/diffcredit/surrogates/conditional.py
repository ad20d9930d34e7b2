"""The base model sampled with each contributor's captions; a coalition's images follow its members' captions."""

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.settings import Count, Sampling
from diffcredit.errors import UserError
from diffcredit.surrogates.base import ImageSurrogate, Material, Work
from diffcredit.surrogates.pools import pool_rows
from diffcredit.util.arrays import BoolArray
from diffcredit.util.cache import artifact_name, cached_arrays
from diffcredit.util.progress import Progress
from diffcredit.util.seeds import derive_seed

if TYPE_CHECKING:
    from diffcredit.diffusion.model import DiffusionModel

WHAT = "sampling with the contributors' captions"


@dataclass
class Conditional(ImageSurrogate):
    """Images of the base model for the members' captions, mixed in proportion to their data (SurrogateSHAP).

    The assumption: a coalition's model would make what the base model makes when given the coalition's captions. The
    model must follow the captions of its training images. For each contributor's captions as many images as the study's
    are sampled once, from the study's initial noises; no training and no sampling per coalition.
    """

    coalitions: Count = 1000

    def work(self, n: int, coalitions: int) -> Work:
        return Work(samplings=n)

    def prepare(self, material: Material) -> None:
        self.sample(material.base(), material.contributions, material.sampling, material.folder, material.progress)

    def sample(
        self,
        model: "DiffusionModel",
        contributions: Contributions,
        sampling: Sampling,
        folder: Path,
        progress: Progress,
    ) -> None:
        """Sample the library, one file per contributor in ``folder``, unless it is there."""
        from diffcredit.diffusion.generating import generate

        prompts, n = captions_of(model, contributions), contributions.n
        weights, settings = model.fingerprint, asdict(sampling)
        library = []
        for index, texts in enumerate(prompts):
            progress(WHAT, index, n)
            name = artifact_name("conditional", [weights, settings, texts])

            def sampled(texts: list[str] = texts) -> dict[str, NDArray[np.uint8]]:
                return {"images": generate(following(model, texts), sampling)}

            library.append(cached_arrays(folder, name, sampled)["images"])
        progress(WHAT, n, n)
        self.library = np.concatenate(library)
        self._counts, self._images = contributions.counts, len(library[0])

    def rows(self, coalition: BoolArray) -> NDArray[np.int64]:
        return pool_rows(coalition, self._counts, self._images)


def captions_of(model: "DiffusionModel", contributions: Contributions) -> list[list[str]]:
    """Return each contributor's captions, repeated ones too, in an order that does not depend on other contributors."""
    if not getattr(model, "prompts", None):
        raise UserError("conditional sampling: the model follows no text; accepted: a text-to-image model")
    if getattr(model, "prompt", None) is not None or contributions.captions is None:
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


def following(model: Any, prompts: Sequence[str]) -> Any:
    """Return the same model, weights shared, with other prompts."""
    other = copy.copy(model)
    other.prompts = tuple(prompts)
    return other
