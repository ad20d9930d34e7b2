"""A plain function of the images as a property."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from diffcredit.errors import UserError
from diffcredit.features import Images


class FunctionProperty:
    """``function(images, **options)`` as a property: called as the function is, explained by its docstring's first
    line. ``higher_is_better``, ``title``, ``unit`` and the like may be attributes of the function."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.__wrapped__ = function
        self._options = options
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self.title = self.name.replace("_", " ").capitalize()
        self.explanation = (inspect.getdoc(function) or "").partition("\n")[0]
        vars(self).update({word: value for word, value in vars(function).items() if not word.startswith("_")})

    def measure(self, images: Images) -> float:
        return self.__wrapped__(images, **self._options)


def property_of(function: Callable[..., Any]) -> Callable[..., FunctionProperty]:
    """What makes a property of ``function`` and the options after its first argument, the images."""
    signature = inspect.signature(function)
    options = list(signature.parameters.values())[1:]
    if not signature.parameters:
        raise UserError("it takes no images; a function of images is expected")

    @functools.wraps(function)
    def make(**values: Any) -> FunctionProperty:
        return FunctionProperty(function, values)

    vars(make)["__signature__"] = signature.replace(parameters=options)
    return make
