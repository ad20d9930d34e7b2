"""What a baseline is: credits from what a study has before any retraining."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from diffcredit.contributions import Contributions
from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.errors import UserError
from diffcredit.features.extractors import Extractors
from diffcredit.properties import Images
from diffcredit.util.arrays import FloatArray
from diffcredit.util.progress import Progress, silent

if TYPE_CHECKING:
    from diffcredit.diffusion.model import DiffusionModel  # brings torch, which most baselines do without

How = Literal["sum", "mean", "max"]
Category = Literal["floor", "control", "similarity", "application", "gradient", "influence", "surrogate"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What baselines look at: the contributions and the base model's ``generated`` images (g, h, w, 3), image j from
    the noise of seed j of ``sampling``; and, where a method asks for it, the fitted property that contributors are
    credited for, the base model (loaded when asked for) with how it was trained, the model before that training with
    the training's seed (None: it came trained), others that were trained as it was (``replicate(s)`` for s ≥ 1, from
    another initialisation and data order; None: there are none), a seed for what is random, and a folder where what is
    dear is kept (None: nowhere)."""

    contributions: Contributions
    generated: Images
    prop: Any = None
    seed: int = 0
    extractors: Extractors = field(default_factory=Extractors)
    load_model: "Callable[[], DiffusionModel] | None" = None
    sampling: Sampling | None = None
    training: Training | None = None
    start: "Callable[[], tuple[DiffusionModel, int]] | None" = None
    replicate: "Callable[[int], DiffusionModel] | None" = None
    folder: Path | None = None
    progress: Progress = silent

    def model(self, method: str, replicate: int = 0) -> "DiffusionModel":
        """The base model, which ``method`` needs, or another ``replicate`` of it."""
        if self.load_model is None:
            raise UserError(f"{method}: needs the base model, and none was given")
        return self.replicates(method)(replicate) if replicate else self.load_model()

    def replicates(self, method: str) -> "Callable[[int], DiffusionModel]":
        """What gives other models that were trained as the base model was, which ``method`` needs."""
        if self.replicate is None:
            raise UserError(
                f"{method}: models: more than 1 are trained as the base model was, and a model that came trained has "
                "no such training; 1 is accepted"
            )
        return self.replicate

    def queries(self, method: str) -> Images:
        """The generated images, of which there must be one."""
        if len(self.generated) == 0:
            raise UserError(f"{method}: needs generated images, and there are none")
        return self.generated


class Scoring(Protocol):
    """A baseline that scores every training image: how much it has to do with the generated images, on average.

    A plug-in ``package.module:Class`` is as good as ours; its fields are its options. Scores of a contributor's
    images become its credit by the first of ``aggregations``, or another that is asked for. ``chosen`` tells numbers
    that the method chose by itself, such as λ, once it has scored. ``of_property`` (default false): it looks at the
    property that contributors are credited for, so that each has its own scores.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    category: ClassVar[Category]
    aggregations: ClassVar[tuple[How, ...]]

    def scores(self, evidence: Evidence) -> FloatArray:
        """(m,), in the order of the contributions' images, the mean over the generated images."""
        ...


class Crediting(Protocol):
    """A baseline that credits contributors without scoring their images one by one; ``chosen`` and ``of_property`` are
    as above."""

    name: ClassVar[str]
    title: ClassVar[str]
    category: ClassVar[Category]

    def credits(self, evidence: Evidence) -> FloatArray:
        """(n,), in the order of the contributors."""
        ...
