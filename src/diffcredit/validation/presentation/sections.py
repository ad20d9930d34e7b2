"""A part of the validation as people read it: sentences, tables, figures and photographs, as plain records."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from diffcredit.validation.statistics.records import Estimate

Cell = str | int | float | Estimate | None
"""A text, a count, a number, or a number with its interval; None: empty."""

Numbers = TypeVar("Numbers")


@dataclass(frozen=True)
class Table:
    """``rows`` with a cell for each of ``columns``. ``name`` is the file's name, in letters and hyphens. In a CSV file
    an estimate takes three columns. Numbers on the page have so many ``decimals``."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    decimals: int = 3


@dataclass(frozen=True)
class Figure:
    """A drawing as SVG text. The caption is also its text alternative."""

    name: str
    title: str
    caption: str
    svg: str


@dataclass(frozen=True)
class Photograph:
    """A grid of images as PNG."""

    name: str
    title: str
    caption: str
    png: bytes


@dataclass(frozen=True)
class Section:
    """One part. ``summary`` has what a reader should remember, in sentences; ``caveats`` what the part does not
    show."""

    part: str
    title: str
    summary: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    photographs: tuple[Photograph, ...] = ()
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartResult(Generic[Numbers]):
    """What a section is made from: ``numbers``, by property title where they differ by property, ``photographs`` of
    images, and ``caveats`` that depend on the study."""

    numbers: Numbers
    photographs: tuple[Photograph, ...] = ()
    caveats: tuple[str, ...] = ()
