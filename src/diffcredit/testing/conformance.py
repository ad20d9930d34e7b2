"""Errors of conformance checks."""

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class ConformanceError(AssertionError):
    """A plug-in violates its protocol; the message says how."""


def require(condition: bool, sentence: str) -> None:
    """Raise a ConformanceError unless ``condition`` holds."""
    if not condition:
        raise ConformanceError(sentence)


def attempt(what: str, action: Callable[[], Result]) -> Result:
    """Return the result of ``action``; turn an exception into a ConformanceError that starts with ``what``."""
    try:
        return action()
    except ConformanceError:
        raise
    except Exception as error:  # a plug-in may raise anything
        raise ConformanceError(f"{what} raises {type(error).__name__}: {error}") from error
