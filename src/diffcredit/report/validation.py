"""The sections of validation as the page shows them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from numbers import Integral

from diffcredit.report.numbers import number
from diffcredit.validation.presentation.sections import Cell, Section, Table
from diffcredit.validation.statistics.records import Estimate

MOST_ROWS = 10  # of a table that is not folded
LEAST_PART = 3  # rows, on average, in the parts that a table is split into


@dataclass(frozen=True)
class TableView:
    """A table's cells as texts; ``numeric`` says for each column whether it has numbers."""

    title: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class TableParts:
    """A table split into ``parts`` by name, mostly one with the table's own title; each may be ``folded``."""

    title: str
    folded: bool
    parts: Mapping[str, TableView]


def shown_tables(section: Section) -> list[TableParts]:
    """Return a section's tables as the page shows them; long ones are folded, by subject where there are several."""
    shown = []
    for table in section.tables:
        folded = len(table.rows) > MOST_ROWS
        subjects = _subjects(table) if folded else {}
        parts = {name: _table_view(part) for name, part in subjects.items()} or {table.title: _table_view(table)}
        shown.append(TableParts(table.title, folded, parts))
    return shown


def cell_text(cell: Cell, decimals: int) -> str:
    """Format a cell as ``0.61 (0.52 to 0.68)``, as a number without known interval, or as ``none`` without number."""
    if isinstance(cell, str):
        return cell
    if cell is None:
        return "–"
    if isinstance(cell, Estimate):
        if not math.isfinite(cell.value) or not cell.bounded:
            return cell_text(float(cell.value), decimals)
        low, high = number(cell.low, decimals), number(cell.high, decimals)
        return f"{number(cell.value, decimals)} ({low} to {high})"
    if isinstance(cell, Integral):
        return number(int(cell), 0)
    if math.isnan(cell):
        return "none"
    return number(cell, decimals) if math.isfinite(cell) else "∞" if cell > 0 else "−∞"


def _subjects(table: Table) -> dict[str, Table]:
    """Split a table by its first column, which is dropped, where that names the subject of consecutive rows; else
    empty."""
    stretches = [(subject, tuple(rows)) for subject, rows in groupby(table.rows, key=lambda row: row[0])]
    names = {subject for subject, _ in stretches if isinstance(subject, str)}
    if not 1 < len(names) == len(stretches) <= len(table.rows) / LEAST_PART or len(table.columns) == 1:
        return {}
    return {
        str(subject): replace(
            table, title=f"{table.title}: {subject}", columns=table.columns[1:], rows=tuple(row[1:] for row in rows)
        )
        for subject, rows in stretches
    }


def _table_view(table: Table) -> TableView:
    columns = [[row[i] for row in table.rows] for i in range(len(table.columns))]
    return TableView(
        title=table.title,
        columns=table.columns,
        numeric=tuple(
            not any(isinstance(cell, str) for cell in column) and any(cell is not None for cell in column)
            for column in columns
        ),
        rows=tuple(tuple(cell_text(cell, table.decimals) for cell in row) for row in table.rows),
    )
