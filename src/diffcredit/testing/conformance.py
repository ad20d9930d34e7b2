"""How a conformance check complains."""

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class ConformanceError(AssertionError):
    """A plug-in breaks its protocol; the sentence says how."""


def require(condition: bool, sentence: str) -> None:
    """Raises unless ``condition`` holds."""
    if not condition:
        raise ConformanceError(sentence)


def attempt(what: str, action: Callable[[], Result]) -> Result:
    """What ``action`` returns; an exception becomes a sentence that starts with ``what``, its cause attached."""
    try:
        return action()
    except ConformanceError:
        raise
    except Exception as error:  # a plug-in may raise anything
        raise ConformanceError(f"{what} raises {type(error).__name__}: {error}") from error
