"""Surrogates: cheap stand-ins G for F, known for every coalition but perhaps the empty one.

For any b, φ(F) = b·φ(G) + φ(F − b·G). The credits of G cost arithmetic alone, so evaluations are spent on what G
misses. G(∅) shifts all of φ(G) by the same amount; differences between contributors never need it.

To write one for a study file, inherit from :class:`ImageSurrogate`, or write any class with the members it must have.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import UserError
from diffcredit.properties import Images
from diffcredit.util.arrays import BoolArray
from diffcredit.util.plugins import Adapted, missing_members
from diffcredit.util.progress import Progress

if TYPE_CHECKING:  # these bring torch, which kept values do not need
    from diffcredit.diffusion.model import DiffusionModel
    from diffcredit.retraining.base import Retraining

Surrogate = Callable[[BoolArray], NDArray[np.float64]]  # coalitions (m, n) to values (m,) of G for one property


@dataclass(frozen=True)
class Material:
    """Everything that a surrogate may be made from.

    ``base`` returns the base model and ``generated`` its images, both made when first called. ``retraining`` is the
    study's, prepared; a surrogate outside a study has none. ``folder`` is where expensive results are kept.
    """

    contributions: Contributions
    sampling: Sampling
    folder: Path
    progress: Progress
    base: Callable[[], "DiffusionModel"]
    generated: Callable[[], Images]
    retraining: "Retraining | None" = None


@dataclass(frozen=True)
class Work:
    """The cost of a surrogate: models to fine-tune, and times that ``sampling.images`` images are sampled."""

    fine_tunings: int = 0
    samplings: int = 0


class ImageSurrogate:
    """Base class of surrogates that make images in place of a coalition's model, for every property of images.

    One must have ``coalitions``, :meth:`prepare`, :meth:`work`, and either ``library`` and :meth:`rows` or
    :meth:`images`. The fields of a dataclass are the options of the study file. One thread at a time uses it.
    """

    coalitions: int
    """How many coalitions its own credits are estimated from."""

    needs_start: bool = False
    """Whether it fine-tunes the model that all coalitions start from; a retraining without one is then refused."""

    keeps_seeds: bool = False
    """Whether image j is that of seed j, as properties need that have ``ordered``."""

    library: Images | None = None
    """A fixed set (l, h, w, 3) that all images are drawn from, once prepared: their features are extracted once."""

    def work(self, n: int, coalitions: int) -> Work:
        """Return the cost with n groups of images (each contributor's, and the house's) and so many coalitions."""
        raise NotImplementedError

    def prepare(self, material: Material) -> None:
        """Prepare it, once for a study; keep expensive results in ``material.folder``, and use those found there."""
        raise NotImplementedError

    def rows(self, coalition: BoolArray) -> NDArray[np.int64]:
        """Return which images of ``library`` stand in for those of a coalition (n,) of at least one."""
        raise NotImplementedError

    def rows_for(self, coalition: BoolArray, seeds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return :meth:`rows` for some of the images alone, given their indices ``seeds``: what a property with prompts
        measures. Asked only where ``keeps_seeds``."""
        return self.rows(coalition)[seeds]

    def images(self, coalition: BoolArray) -> Images:
        """Return the images (m, h, w, 3) uint8 for a coalition (n,) of at least one; always the same."""
        assert self.library is not None  # where it is None, images is overridden
        return self.library[self.rows(coalition)]


class AdaptedSurrogate(Adapted, ImageSurrogate):
    """A user's surrogate that does not inherit from :class:`ImageSurrogate`."""


def as_surrogate(component: Any, name: str) -> ImageSurrogate:
    """Return ``component`` as an :class:`ImageSurrogate`; raise a UserError about ``name`` if members are missing."""
    made = "images" if missing_members(component, ImageSurrogate, ["rows"]) else "rows"
    for member in missing_members(component, ImageSurrogate, ["coalitions", "work", "prepare", made]):
        raise UserError(f"{name!r} has no {member}; an ImageSurrogate is expected")
    return component if isinstance(component, ImageSurrogate) else AdaptedSurrogate(component)
