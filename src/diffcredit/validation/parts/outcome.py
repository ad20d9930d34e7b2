"""The result of a part: numbers, with the pictures and caveats that belong to them."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from diffcredit.validation.presentation.sections import Photograph

Numbers = TypeVar("Numbers")


@dataclass(frozen=True)
class PartResult(Generic[Numbers]):
    """The result of a part: its ``numbers``, by property title where they differ by property, ``photographs`` of
    images, and ``caveats`` that depend on the study."""

    numbers: Numbers
    photographs: tuple[Photograph, ...] = ()
    caveats: tuple[str, ...] = ()
