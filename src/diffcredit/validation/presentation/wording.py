"""Numbers in sentences, and the results of several properties in one summary or table."""

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import TypeVar

from diffcredit.validation.presentation.sections import Cell, Table
from diffcredit.validation.statistics.records import Estimate

Numbers = TypeVar("Numbers")


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
    if not (isfinite(estimate.low) and isfinite(estimate.high)):
        return value
    return f"{value} ({interval}{worded(estimate.low, form)} to {worded(estimate.high, form)})"
