"""Plug-ins that inherit from none of our base classes.

A plug-in may be any object with the members it needs. Where it is built, it is wrapped once in a class that gives it
the base class's defaults for the rest, so that nothing later asks which members there are::

    class AdaptedProperty(Adapted, Property):
        pass

    prop = AdaptedProperty(users_object)
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any


class Adapted:
    """A wrapper with the public members of ``wrapped`` and, where that has none, those of the other base class.

    Members are looked up each time, since some change when a plug-in is fitted or loaded. ``settings_of`` and
    ``code_of`` look at ``__wrapped__``, so that wrapping changes no fingerprint.
    """

    def __init__(self, wrapped: Any) -> None:
        self.__wrapped__ = wrapped

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            with suppress(AttributeError):
                return getattr(object.__getattribute__(self, "__wrapped__"), name)
        return super().__getattribute__(name)


def overridden(method: Callable[..., Any], default: Callable[..., Any]) -> bool:
    """Whether a bound ``method`` is another one than the base class's ``default``."""
    return getattr(method, "__func__", None) is not default


def missing_members(component: Any, base: type, required: Sequence[str]) -> list[str]:
    """Return those of the ``required`` members that the class of ``component`` neither defines nor annotates.

    The class is asked and not the object, whose members may need a loaded network.
    """
    kind, nothing = type(component), object()
    annotated = {name for each in kind.__mro__ if each is not base for name in vars(each).get("__annotations__", ())}

    def defined(name: str) -> bool:
        defaults = (nothing, inspect.getattr_static(base, name, nothing))
        return inspect.getattr_static(kind, name, nothing) not in defaults

    return [name for name in required if name not in annotated and not defined(name)]
