"""The interface of a retraining, and helpers to implement one.

A class of your own inherits from :class:`Retraining` and implements what is abstract there. One that has the members
without inheriting is as good; it may leave out ``fine_tunes`` and ``at_once``. A study file names it so:
``retraining: {method: "my_package.module:MyRetraining"}``. :func:`diffcredit.testing.check_retraining` checks it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.training import encoded
from diffcredit.errors import UserError
from diffcredit.util.plugins import Adapted
from diffcredit.util.progress import Progress
from diffcredit.util.seeds import derive_seed


@dataclass(frozen=True)
class RetrainingContext:
    """Everything that a retraining starts from: the base model, how it was trained and on which contributions, the
    study's seed, the folder for prepared models, and the function that loads one from there."""

    base: DiffusionModel
    contributions: Contributions
    training: Training
    seed: int
    folder: Path
    load: Callable[[Path], DiffusionModel]
    progress: Progress

    def data(self) -> Batch:
        """Return all contributions as the base model, and every model made from it, sees them."""
        return encoded(self.base, self.contributions, self.folder, mirrored=self.training.flip, progress=self.progress)

    def untrained(self, like: DiffusionModel) -> DiffusionModel:
        """Return the model that learned from no image: ``like``'s architecture with the study's one set of fresh
        weights, so that its F is a number and not one more source of noise."""
        return like.untrained(derive_seed(self.seed, "untrained"))


@dataclass(frozen=True)
class Rehearsal:
    """The trainings of a retraining, from which its cost is estimated: a model of the right shape, the settings of the
    preparation and those of each coalition's training. None: there is nothing to train. ``together``: several
    coalitions' models are trained at once where a GPU has room."""

    model: DiffusionModel
    preparation: Training | None
    coalition: Training | None
    together: bool = False


class Retraining(ABC):
    """A way to a coalition's model.

    It is used by one thread at a time. The fields of a dataclass are the keys of the study file's ``retraining``
    section and fix its fingerprint. An error that is raised for one coalition fails that evaluation alone.
    """

    weights: str
    """Fingerprint of the weights that coalitions start from, known once prepared; empty if they start from nothing."""

    @abstractmethod
    def prepare(self, context: RetrainingContext) -> None:
        """Do what is done once per study, such as pruning. What is made is kept in ``context.folder`` and found again
        there. ``context`` is left as it is."""

    @abstractmethod
    def rehearse(self, start: DiffusionModel, training: Training, contributions: Contributions) -> Rehearsal:
        """Return what there is to train, given the base model's architecture and training. Before ``prepare``."""

    @abstractmethod
    def models_for(self, coalitions: NDArray[np.bool_], seeds: Sequence[int]) -> Iterator[DiffusionModel]:
        """Yield the models of ``coalitions`` (m, n), one per row and seed.

        Each learns from ``context.contributions.of(coalition)``: the members' images and all house images. Where these
        are none, it is ``context.untrained(…)``. All that is random follows from the seed; where nothing is, another
        seed gives the same model. Where ``at_once`` is 1, one model may be yielded again and again with other weights.
        """

    # What a retraining may have

    fine_tunes: ClassVar[bool] = True
    """Whether it fine-tunes a model that all coalitions start from. If so, it has once prepared: ``start``, that model;
    ``settings``, the Training of a coalition; and ``context``, which it was prepared with. Surrogates that fine-tune
    the same model need these, and are refused before anything is trained where this is False."""

    at_once: int = 1
    """How many coalitions' models are best made together on this machine, known once prepared."""


class AdaptedRetraining(Adapted, Retraining):
    """A user's retraining that does not inherit from :class:`Retraining`, which gives it the optional members."""

    prepare: Any = None
    rehearse: Any = None
    models_for: Any = None


def as_retraining(component: Any, name: str) -> Retraining:
    """Return ``component`` as a :class:`Retraining`; raise a UserError about ``name`` if methods are missing."""
    for method in ("prepare", "rehearse", "models_for"):
        if not callable(getattr(component, method, None)):
            raise UserError(f"{name!r} has no method {method}; a Retraining is expected")
    return component if isinstance(component, Retraining) else AdaptedRetraining(component)


class OneByOne(Retraining):
    """A retraining that makes one model after another. Once prepared, it has ``start``, the model that coalitions start
    from, and ``context``, which it was prepared with."""

    start: DiffusionModel
    context: RetrainingContext

    def models_for(self, coalitions: NDArray[np.bool_], seeds: Sequence[int]) -> Iterator[DiffusionModel]:
        for coalition, seed in zip(coalitions, seeds, strict=True):
            learns = len(self.context.contributions.of(coalition)) > 0
            yield self.model_for(coalition, seed) if learns else self.context.untrained(self.start)

    @abstractmethod
    def model_for(self, coalition: NDArray[np.bool_], seed: int) -> DiffusionModel:
        """Return the model of a coalition (n,) with images: somebody's, or the house's."""
