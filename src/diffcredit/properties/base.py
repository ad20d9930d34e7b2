"""Properties: functions from a model's generated images, or from the model itself, to a number F.

A function of the images is one; so is a class that inherits from :class:`Property`, or has members of the same names::

    @dataclass
    class Brightness(Property):
        percentile: float = 50.0  # an option of the study file

        name = "brightness"
        unit = "levels of 255"
        range = (0.0, 255.0)

        def measure(self, images):
            return float(np.percentile(images, self.percentile))

Pitfalls: a value that depends on the order of the images, on other calls or on unseeded random numbers is refused by
``diffcredit.testing.check_property``; so is one that changes its input. A value whose expectation depends on the number
of images should say so in ``bias``.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.features import Extractor, Features, FeaturesOption, Images
from diffcredit.features.extractors import Extractors
from diffcredit.util.plugins import Adapted, overridden

if TYPE_CHECKING:  # brings torch
    from diffcredit.diffusion.model import DiffusionModel

METHODS = "measure(images), measure_features(features), measure_model(model)"

State = Mapping[str, NDArray[Any]]  # what a property was fitted to, by name


@dataclass(frozen=True)
class Context:
    """The data that a property may be fitted to.

    ``generated`` are the base model's images (m, h, w, 3); ``contributions`` has the training and the held-out images;
    ``extractors`` are the study's; ``prompts`` (m,) are those that the images were generated for (None: the model
    follows no text).
    """

    generated: Images
    contributions: Contributions
    extractors: Extractors = field(default_factory=Extractors)
    prompts: tuple[str, ...] | None = None


class Property:
    """Base class of properties.

    One must have a ``name`` and exactly one of :meth:`measure`, :meth:`measure_features` and :meth:`measure_model`. All
    else has a default. The fields of a dataclass are the options of the study file; they, and the code of a plug-in,
    identify the property in the ledger.

    Determinism: a value must follow from the input, the fields and the fitted state alone, in every process. Methods
    may write into images and features, which are copies. Threads: one thread at a time uses a property, not always the
    same one. Errors: an evaluation in which a method raises is recorded without a value of this property; other
    properties keep theirs.
    """

    name: str = ""
    """Identifies it in the study. A study file's ``as`` replaces it."""
    higher_is_better: bool = True
    """Whether a higher value is better, which orders ranks."""
    range: tuple[float, float] = (-inf, inf)
    """Bounds of the value; a value outside is an error."""
    title: str = ""
    """Its name for readers; empty: ``name``."""
    unit: str = ""
    explanation: str = ""
    """One or two sentences for readers."""
    differences: tuple[str, str] = ("", "")
    """Sentences of a lower and of a higher value, with ``{}`` for the amount, such as ``pictures would be {} less
    colourful``; empty: the title would be lower or higher."""
    bias: str = ""
    """How the expected value depends on the number of images, for readers."""
    title_of_each: str | None = None
    """The name for readers of :meth:`of_each`, where it is something else than the property."""
    features: FeaturesOption
    """The extractor, which a property with :meth:`measure_features` must name."""
    classifier: bool = False
    """Whether ``features`` must give class probabilities."""
    ordered: bool = False
    """Whether image j must be that of seed j. Images put together from several models then cannot stand in."""
    whole_training: bool = False
    """Whether it compares with all training images, also where a study file's ``prompts`` restrict what it measures."""

    # Exactly one of these.

    def measure(self, images: Images) -> float:
        """Return the value of images (m, h, w, 3) uint8, m ≥ 1: a finite number within ``range``."""
        raise NotImplementedError

    def measure_features(self, features: Features) -> float:
        """Return the value of what the extractor ``features`` extracted from the images, in order of their seeds."""
        raise NotImplementedError

    def measure_model(self, model: "DiffusionModel") -> float:
        """Return the value of the model itself, whose weights must stay as they are."""
        raise NotImplementedError

    # Both or neither.

    def fit(self, context: Context) -> State:
        """Learn from the study, once; return what was learnt. It is kept with the study and identifies the property."""
        raise NotImplementedError

    def restore(self, state: State) -> None:
        """Take what :meth:`fit` returned; called in every process before anything is measured."""
        raise NotImplementedError

    # What a study must have for it. Each raises a UserError, before anything is trained.

    def check(self, contributions: Contributions, images: int) -> None:
        """Check the contributions and the number of generated images."""

    def check_extractor(self, extractor: Extractor, contributions: Contributions) -> None:
        """Check the extractor ``features``, which is loaded."""

    def check_prompts(self, prompts: Sequence[str] | None) -> None:
        """Check the prompts that images are generated for (None: the model follows no text)."""

    def least(self, dimensions: int) -> int:
        """Return the least number of images that can be measured, with features of so many dimensions."""
        return 1

    # What else it can say of images or, with measure_features, of features.

    def standard_error(self, observed: Any, /) -> float:
        """Return the standard deviation of the value over fresh sets of as many generated images, at least 2."""
        raise NotImplementedError

    def of_each(self, observed: Any, /) -> NDArray[np.float64]:
        """Return a number for each image, (m,), where a single image has one."""
        raise NotImplementedError


def needs_model(prop: Property) -> bool:
    """Whether a property measures the model itself and not its images."""
    return overridden(prop.measure_model, Property.measure_model)


def needs_features(prop: Property) -> bool:
    return overridden(prop.measure_features, Property.measure_features)


def needs_fitting(prop: Property) -> bool:
    return overridden(prop.fit, Property.fit)


def has_standard_error(prop: Property) -> bool:
    return overridden(prop.standard_error, Property.standard_error)


def has_value_of_each(prop: Property) -> bool:
    return overridden(prop.of_each, Property.of_each)


class FunctionProperty(Property):
    """``function(images, **options)`` as a property, named like the function and explained by its docstring.

    ``higher_is_better``, ``title``, ``unit`` and the like may be attributes of the function.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.__wrapped__ = function
        self._options = options
        self.name = getattr(function, "__name__", type(function).__name__)
        self.title = self.name.replace("_", " ").capitalize()
        self.explanation = (inspect.getdoc(function) or "").partition("\n")[0]
        vars(self).update({word: value for word, value in vars(function).items() if not word.startswith("_")})

    def measure(self, images: Images) -> float:
        return self.__wrapped__(images, **self._options)


class AdaptedProperty(Adapted, Property):
    """A user's property that does not inherit from :class:`Property`."""


def property_of(function: Callable[..., Any]) -> Callable[..., FunctionProperty]:
    """Return a factory of properties, which takes the function's options after its first argument, the images."""
    signature = inspect.signature(function)
    if not signature.parameters:
        raise UserError("it takes no images; a function of images is expected")

    @functools.wraps(function)
    def make(**values: Any) -> FunctionProperty:
        return FunctionProperty(function, values)

    vars(make)["__signature__"] = signature.replace(parameters=list(signature.parameters.values())[1:])
    return make


def as_property(component: Any) -> Property:
    """Return ``component``, an object with a property's members or a function of images, as a :class:`Property`."""
    if inspect.isfunction(component):
        return property_of(component)()
    return component if isinstance(component, Property) else AdaptedProperty(component)


def named_property(component: Any, reference: str, label: str | None = None) -> Property:
    """Return what a study file names as a :class:`Property`; raise a UserError if it has not the members it needs.

    ``reference`` is how the study file refers to it, and its name where it has none. ``label``, the study file's
    ``as``, replaces its name.
    """
    prop = as_property(component)
    if not (needs_model(prop) or needs_features(prop) or overridden(prop.measure, Property.measure)):
        raise UserError(f"{reference!r} has none of {METHODS}; a property has one of them")
    if needs_features(prop) and not isinstance(getattr(prop, "features", None), str | dict):
        raise UserError(f"{reference!r} has measure_features but no features, the extractor's name")
    if needs_fitting(prop) and not overridden(prop.restore, Property.restore):
        raise UserError(f"{reference!r} has fit(context) but no restore(state)")
    if name := label or (reference.rpartition(":")[2] if not prop.name else ""):
        # also where the class is frozen: the name is the study's, not one of its settings
        object.__setattr__(component, "name", name)
    return prop
