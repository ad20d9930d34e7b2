"""A part of the validation as people read it: sentences, tables, figures and photographs, as plain records. The
functions here give all parts the same wording and the same form of tables."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from diffcredit.validation.statistics.records import Estimate

Cell = str | int | float | Estimate | None  # a text, a count, a number, or a number with its interval; None: empty

Numbers = TypeVar("Numbers")


@dataclass(frozen=True)
class Table:
    """``rows`` with a cell for each of ``columns``. ``name`` is the file's name, in letters and hyphens. In a CSV file
    an estimate takes three columns. ``decimals`` are those of numbers on the page."""

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
    """One part as people read it: ``summary`` has its results in sentences, ``caveats`` states what it does not
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
    """The content of a section: ``numbers``, mostly by property title, and ``caveats`` that depend on the study."""

    numbers: Numbers
    photographs: tuple[Photograph, ...] = ()
    caveats: tuple[str, ...] = ()


def property_table(
    name: str,
    title: str,
    columns: tuple[str, ...],
    results: Mapping[str, Numbers],
    rows: Callable[[Numbers], Iterable[tuple[Cell, ...]]],
    decimals: int = 3,
) -> Table:
    """Make a table of the ``rows`` of each property's result, with the property's title before ``columns``."""
    found = tuple((prop, *row) for prop, result in results.items() for row in rows(result))
    return Table(name, title, ("property", *columns), found, decimals)


def property_summary(
    results: Mapping[str, Numbers], sentences: Callable[[str, Numbers], Iterable[str]]
) -> tuple[str, ...]:
    """Join the ``sentences`` of each property's title and result."""
    return tuple(sentence for title, result in results.items() for sentence in sentences(title, result))


def worded(value: float, form: str = ".2f") -> str:
    """Format ``value`` by Python's ``form``, with a true minus sign; a number that rounds to zero has none."""
    text = format(value, form)
    return text.replace("-", "") if float(text) == 0 else text.replace("-", "−")


def in_words(estimate: Estimate, form: str = ".2f", interval: str = "") -> str:
    """Format as ``0.61 (0.52 to 0.68)``, or without an unknown interval; the words ``interval`` stand before it."""
    value = worded(estimate.value, form)
    bounds = f" ({interval}{worded(estimate.low, form)} to {worded(estimate.high, form)})" if estimate.bounded else ""
    return f"{value}{bounds}"
