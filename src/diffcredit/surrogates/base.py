"""What a surrogate is."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.settings import Sampling
from diffcredit.properties import Images
from diffcredit.util.arrays import BoolArray
from diffcredit.util.progress import Progress

if TYPE_CHECKING:  # these bring torch, which kept values do not need
    from diffcredit.diffusion.protocol import DiffusionModel
    from diffcredit.retraining.protocol import Retraining


class Surrogate(Protocol):
    """A cheap stand-in G for F, known for every coalition but perhaps the empty one.

    φ(F) = b·φ(G) + φ(F − b·G) for any b: G's credits cost arithmetic alone, and evaluations are spent on what
    G misses. G(∅) shifts all of φ(G) by the same amount, so that differences between contributors never need
    it.
    """

    def __call__(self, coalitions: BoolArray) -> NDArray[np.float64]:
        """G of each row: (m, n) booleans → (m,), the same whenever it is asked. Raises a UserError for a
        coalition that has no value."""
        ...


@dataclass(frozen=True)
class Material:
    """What a study has for its surrogates: the contributions, the prepared retraining, the base model and its
    ``generated`` images (made when asked for), how images are sampled, and the folder where what they make is kept."""

    contributions: Contributions
    retraining: "Retraining"
    base: Callable[[], "DiffusionModel"]
    generated: Callable[[], Images]
    sampling: Sampling
    folder: Path
    progress: Progress


@dataclass(frozen=True)
class Work:
    """How many models a surrogate fine-tunes, and how many times it samples ``sampling.images`` images."""

    fine_tunings: int = 0
    samplings: int = 0


class ImageSurrogate(Protocol):
    """A surrogate for every property that measures images: images that stand in for those of a coalition's model.

    A plug-in ``package.module:Class`` is as good as ours. Its fields are the options of the study file; ``coalitions``
    is how many are asked for its own credits. One that fine-tunes the model that all coalitions start from says
    ``needs_start = True``, and is refused where the retraining fine-tunes none.

    One whose images are drawn from a fixed set has ``library``, that set (l, h, w, 3), once it is prepared, and
    ``rows(coalition)``, which of them they are: features are then extracted once for all coalitions. One whose image j
    is that of seed j says ``keeps_seeds = True``, without which properties that need that order have no stand-in.
    """

    coalitions: int

    def work(self, n: int, coalitions: int) -> Work:
        """What it costs with n contributors and so many coalitions, to foresee it."""
        ...

    def prepare(self, material: Material) -> None:
        """Once a study. What is dear is kept in ``material.folder`` and found again."""
        ...

    def images(self, coalition: BoolArray) -> Images:
        """(m, h, w, 3) uint8 for a coalition (n,) of at least one; the same whenever it is asked."""
        ...
