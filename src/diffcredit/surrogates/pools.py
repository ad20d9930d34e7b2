"""Surrogates with images for each contributor: from models fine-tuned on each one's images, also averaged (soup), or
from the base model, given each one's captions.

Fine-tuned models start from the model that coalitions start from, so the study's retraining must have one.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.settings import Count
from diffcredit.errors import UserError
from diffcredit.properties import Images
from diffcredit.surrogates.base import ImageSurrogate, Material, Work
from diffcredit.util.arrays import BoolArray
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.cache import artifact_name, cached_arrays
from diffcredit.util.seeds import derive_seed

if TYPE_CHECKING:  # these bring torch
    from diffcredit.diffusion.model import DiffusionModel
    from diffcredit.retraining.soup import ContributorModels


class PooledImages(ImageSurrogate):
    """Base class of surrogates with one pool of images per contributor, mixed in proportion to the members' data. The
    house has a pool too, which is in every mix.

    Image j of a coalition starts from the study's initial noise j, as image j of every model does, and is taken from
    one member's pool. No training and no sampling per coalition, only measuring.
    """

    def sample(
        self,
        material: Material,
        names: Sequence[str],
        model_of: "Callable[[int], DiffusionModel]",
        what: str,
        *,
        often: bool = False,
    ) -> None:
        """Sample pool i by ``model_of(i)`` unless the artifact ``names[i]`` is there; ``what`` names the progress.

        ``often``: as in :func:`diffcredit.diffusion.generating.generate`.
        """
        from diffcredit.diffusion.generating import generate

        pools = []
        for index, name in enumerate(names):
            material.progress(what, index, len(names))

            def sampled(index: int = index) -> dict[str, Images]:
                return {"images": generate(model_of(index), material.sampling, often=often)}

            pools.append(cached_arrays(material.folder, name, sampled)["images"])
        material.progress(what, len(names), len(names))
        self.library = np.concatenate(pools)
        self._contributions, self._images = material.contributions, len(pools[0])

    def rows(self, coalition: BoolArray) -> NDArray[np.int64]:
        return self.rows_for(coalition, np.arange(self._images))

    def rows_for(self, coalition: BoolArray, seeds: NDArray[np.int64]) -> NDArray[np.int64]:
        # shared out anew: of every second image, van der Corput's points are all in the same half
        members, counts = self._contributions.groups_of(coalition), self._contributions.group_counts
        return shared_out(members, counts, len(seeds)) * self._images + seeds


@dataclass
class Pools(PooledImages):
    """Pools of images that the contributors' own models generated."""

    coalitions: Count = 1000

    needs_start = True
    keeps_seeds = True

    def work(self, n: int, coalitions: int) -> Work:
        return Work(fine_tunings=n, samplings=n)

    def prepare(self, material: Material) -> None:
        retraining, given = _fine_tuning(material, "pools"), material.contributions
        settings = asdict(retraining.settings), material.sampling.identity
        name = fingerprint([retraining.start.fingerprint, *settings, given.fingerprint, retraining.context.seed])[:12]
        models = cache(lambda: _contributor_models(material, "pools"))  # made where a pool is missing
        self.sample(
            material,
            [f"pool-{name}-{index}" for index in range(len(given.groups))],
            lambda index: models().model(index),
            "sampling the contributors' models",
            often=True,
        )


@dataclass
class Conditional(PooledImages):
    """Pools of images that the base model makes from each contributor's captions (SurrogateSHAP).

    The assumption: a coalition's model would make what the base model makes when given the coalition's captions. So
    contributors with the same captions get the same credit, whatever their images are like. The model must follow the
    captions, or labels, of its training images. Where the study states prompts, its own images follow these,
    and the pools the captions all the same.
    """

    coalitions: Count = 1000

    def work(self, n: int, coalitions: int) -> Work:
        return Work(samplings=n)

    def prepare(self, material: Material) -> None:
        model, prompts = material.base(), captions_of(material.base(), material.contributions)
        material = replace(material, sampling=replace(material.sampling, prompts=None))  # captions, not stated ones

        def following(index: int) -> "DiffusionModel":
            other = copy.copy(model)  # with the same weights
            other.prompts = tuple(prompts[index])
            return other

        self.sample(
            material,
            [artifact_name("conditional", [model.fingerprint, material.sampling.identity, texts]) for texts in prompts],
            following,
            "sampling with the contributors' captions",
        )


@dataclass
class Soup(ImageSurrogate):
    """Images of the model Σ_{i∈S} c_i θ_i / Σ_{i∈S} c_i.

    θ_i is contributor i's own fine-tuned model and c_i the number of its images; the house is one more i, in every S.
    Coalitions need no training, but sampling; hence fewer ``coalitions`` than with other surrogates.
    """

    coalitions: Count = 200

    needs_start = True
    keeps_seeds = True

    def work(self, n: int, coalitions: int) -> Work:
        return Work(fine_tunings=n, samplings=coalitions)

    def prepare(self, material: Material) -> None:
        self._models = _contributor_models(material, "soup")
        self._contributions, self._sampling = material.contributions, material.sampling

    def images(self, coalition: BoolArray) -> Images:
        from diffcredit.diffusion.generating import generate

        return generate(self._models.average(self._contributions.weights(coalition)), self._sampling, often=True)


def captions_of(model: "DiffusionModel", contributions: Contributions) -> list[list[str]]:
    """Return the captions of each contributor's images, and of the house's, repeated ones too, in an order that does
    not depend on other images."""
    if not model.prompts:
        raise UserError("conditional sampling: the model follows no text; accepted: a text-to-image model")
    if model.prompt is not None or contributions.captions is None:
        raise UserError(
            "conditional sampling: one prompt for all images distinguishes no contributors; accepted: a model "
            "trained with the images' own captions"
        )
    order = sorted(range(len(contributions.names)), key=lambda row: derive_seed("prompt", contributions.names[row]))
    texts: list[list[str]] = [[] for _ in contributions.groups]
    for row in order:
        texts[contributions.owner[row]].append(contributions.captions[row])  # HOUSE is the last group
    if [] in texts:
        nobody = contributions.contributors[texts.index([])]
        raise UserError(f"conditional sampling: contributor {nobody!r} gave no image, hence no caption")
    return texts


def shared_out(coalition: BoolArray, counts: NDArray[np.int64], images: int) -> NDArray[np.int64]:
    """Return whose pool each image comes from, (images,): each member in proportion to its data.

    Image j goes to the member whose part of [0, 1) holds the j-th point of van der Corput's sequence. The counts are
    right to about log₂(images)/3, also among the first images, and depend on the coalition alone.
    """
    from scipy.stats import qmc

    members = np.flatnonzero(coalition)
    bounds = np.cumsum(counts[members]) / counts[members].sum()
    points = qmc.Halton(d=1, scramble=False).random(images)[:, 0]
    return members[np.minimum(np.searchsorted(bounds, points, side="right"), len(members) - 1)]


def _contributor_models(material: Material, surrogate: str) -> "ContributorModels":
    from diffcredit.retraining.soup import ContributorModels

    retraining = _fine_tuning(material, surrogate)
    return ContributorModels.prepare(retraining.context, retraining.start, retraining.settings)


def _fine_tuning(material: Material, surrogate: str) -> Any:
    """Return the prepared retraining; raise a UserError if its coalitions do not start from one model."""
    if not all(hasattr(material.retraining, name) for name in ("start", "settings", "context")):
        raise UserError(needs_start(surrogate))
    return material.retraining


def needs_start(surrogate: str) -> str:
    """Return the message that ``surrogate`` needs a retraining whose coalitions start from one model."""
    return (
        f"surrogate {surrogate!r} fine-tunes the model that all coalitions start from, and this retraining does not; "
        "accepted: a retraining such as fine_tune or sparsified, or the surrogates reweighting and real_data"
    )
