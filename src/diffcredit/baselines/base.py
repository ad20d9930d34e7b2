"""The base classes of baselines, and the evidence they are given.

A baseline credits contributors by what a study has before any retraining. It is of one of two kinds: :class:`Scoring`
scores every training image, and scores become credits by aggregation; :class:`Crediting` credits contributors directly.
A class of your own inherits from one of them, or simply has the same members, and is used as
``package.module:Class``; its fields are its options::

    @dataclass
    class Brightness(Scoring):
        power: float = 1.0
        name, title, category, aggregations = "brightness", "Brightness", "floor", ("mean",)

        def scores(self, evidence):
            return evidence.contributions.images.mean(axis=(1, 2, 3)) ** self.power
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from diffcredit.contributions import Contributions
from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.errors import UserError
from diffcredit.features.extractors import Extractors
from diffcredit.properties import Images
from diffcredit.util.arrays import FloatArray
from diffcredit.util.progress import Progress, silent

if TYPE_CHECKING:
    from diffcredit.diffusion.model import DiffusionModel  # imports torch, which most baselines do not need

How = Literal["sum", "mean", "max"]
Category = Literal["floor", "control", "similarity", "application", "gradient", "influence", "surrogate"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that a baseline may look at. All but the first two may be missing: one that needs more refuses."""

    contributions: Contributions
    generated: Images
    """(g, h, w, 3) images of the base model; image j was sampled with seed j of ``sampling``."""
    prop: Any = None
    """The fitted property that contributors are credited for."""
    seed: int = 0
    """The seed of whatever is random in a method."""
    extractors: Extractors = field(default_factory=Extractors)
    load_model: "Callable[[], DiffusionModel] | None" = None
    """Loads the base model."""
    sampling: Sampling | None = None
    """How the images were generated."""
    training: Training | None = None
    """How the base model was trained."""
    start: "Callable[[], tuple[DiffusionModel, int]] | None" = None
    """Returns the model before that training, and the training's seed. None for a pretrained base model."""
    replicate: "Callable[[int], DiffusionModel] | None" = None
    """``replicate(s)``, s ≥ 1: a model trained like the base model, from another seed. None for a pretrained one."""
    folder: Path | None = None
    """Where expensive intermediate results are cached; None: nowhere."""
    progress: Progress = silent

    def model(self, method: str, replicate: int = 0) -> "DiffusionModel":
        """Return the base model or another ``replicate`` of it; refuse ``method`` where there is none."""
        if self.load_model is None:
            raise UserError(f"{method}: needs the base model, and none was given")
        return self.replicates(method)(replicate) if replicate else self.load_model()

    def replicates(self, method: str) -> "Callable[[int], DiffusionModel]":
        """Return ``replicate``; refuse ``method`` where there is none."""
        if self.replicate is None:
            raise UserError(
                f"{method}: models: more than 1 are trained like the base model, and a pretrained model has no such "
                "training; 1 is accepted"
            )
        return self.replicate

    def queries(self, method: str) -> Images:
        """Return the generated images; refuse ``method`` where there are none."""
        if len(self.generated) == 0:
            raise UserError(f"{method}: needs generated images, and there are none")
        return self.generated

    def comparable_queries(self, method: str) -> Images:
        """Return the generated images; refuse ``method`` where their shape is not that of the training images."""
        generated, accepted = self.queries(method), self.contributions.images.shape[1:]
        if generated.shape[1:] != accepted:
            raise UserError(
                f"{method}: generated images of shape {generated.shape[1:]}; the training images' shape {accepted} is "
                "accepted"
            )
        return generated

    def query_sampling(self, method: str) -> Sampling:
        """Return how the generated images were sampled; refuse ``method`` where that is unknown."""
        if self.sampling is None or self.sampling.images < len(self.generated):
            raise UserError(f"{method}: needs to know how the {len(self.generated)} generated images were sampled")
        return self.sampling

    def query_captions(self, model: "DiffusionModel", method: str) -> tuple[str, ...] | None:
        """Return the prompt of each generated image, by its seed; None for a model without texts."""
        if not model.prompts:
            return None
        followed = self.query_sampling(method).prompts_of_images(model.prompts)
        return None if followed is None else followed[: len(self.generated)]

    def required_property(self, method: str) -> Any:
        """Return the property; refuse ``method`` where there is none."""
        if self.prop is None:
            raise UserError(f"{method}: needs the property that contributors are credited for")
        return self.prop


class Baseline:
    """The members that both kinds of baseline have. They are not dataclass fields, so that they are no options."""

    name: str
    """Identifies the method in tables and files."""
    title: str
    """The baseline's name for people."""
    category: Category
    of_property: bool = False
    """Whether the method looks at ``evidence.prop``: each property then has its own credits."""
    chosen: Mapping[str, float]
    """Numbers that the method chose by itself, such as λ; set by its last call."""

    def check(self, evidence: Evidence) -> None:
        """Refuse evidence that does not suffice, before any work of any method: raise a
        :class:`~diffcredit.errors.UserError`.

        A check is given promises instead of what would have to be made: black images for those that the base model will
        generate, the base model before its training, and a property that is not fitted.
        """

    def seconds(self, evidence: Evidence, a_pass: float) -> Mapping[str, float]:
        """Estimate the seconds of the expensive steps, by names that methods which share a step have in common. One
        image goes through the network forward and back, in a batch, in ``a_pass`` seconds. The evidence is promised as
        for :meth:`check`."""
        return {}


class Scoring(Baseline, ABC):
    """A baseline that scores every training image: how much it has to do with the generated images, on average."""

    aggregations: tuple[How, ...]
    """How a contributor's scores become its credit: the usual way first."""

    @abstractmethod
    def scores(self, evidence: Evidence) -> FloatArray:
        """Return (m,) finite scores in the order of the contributions' images: the mean over the generated images.

        Raise a :class:`~diffcredit.errors.UserError` where the evidence does not suffice.
        """

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        return hasattr(other, "scores") if cls is Scoring else NotImplemented


class Crediting(Baseline, ABC):
    """A baseline that credits contributors without scoring their images one by one."""

    @abstractmethod
    def credits(self, evidence: Evidence) -> FloatArray:
        """Return (n,) finite credits in the order of the contributors. Errors as in :meth:`Scoring.scores`."""

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        return hasattr(other, "credits") if cls is Crediting else NotImplemented
