"""What a part of the validation shows: sentences, tables, figures and pictures, as plain records."""

from dataclasses import dataclass, field

from diffcredit.validation.records import Estimate

Cell = str | int | float | Estimate | None
"""A text, a count, a number, a number with its interval; None: there is none."""


@dataclass(frozen=True)
class Table:
    """``rows`` of as many cells as there are ``columns``; ``name`` is its file's name, in letters and hyphens. In a
    CSV file an estimate takes three columns. ``decimals`` of numbers on the page."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    decimals: int = 3


@dataclass(frozen=True)
class Figure:
    """A drawing as SVG text; the caption doubles as its text alternative."""

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
    """One part: ``summary`` is what a reader should take from it, in sentences; ``caveats`` what it does not show."""

    part: str
    title: str
    summary: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    photographs: tuple[Photograph, ...] = ()
    caveats: tuple[str, ...] = field(default_factory=tuple)
