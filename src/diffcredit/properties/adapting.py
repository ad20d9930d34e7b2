"""Functions and users' own objects as properties."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from diffcredit.errors import UserError
from diffcredit.features import Images
from diffcredit.properties.base import Property, needs_features, needs_fitting, needs_model
from diffcredit.util.adapting import Adapted, overridden

METHODS = "measure(images), measure_features(features), measure_model(model)"


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

    ``reference`` is how the study file refers to it, which errors begin with. An object without a name of its own gets
    its name from there. ``label``, the study file's ``as``, replaces its name.
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
