"""The sections of validation as the page shows them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from numbers import Integral

from diffcredit.report.numbers import number
from diffcredit.validation.presentation.sections import Cell, Section, Table
from diffcredit.validation.statistics.records import Estimate

MOST_ROWS = 10  # of a table that is open from the start
TALL = 40  # rows, from which on a table scrolls by itself
LEAST_PART = 3  # rows, on average, of the parts that a table is split into


@dataclass(frozen=True)
class TableView:
    """A table's cells as texts; ``numeric`` tells of each column whether it holds numbers."""

    title: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def tall(self) -> bool:
        return len(self.rows) > TALL


@dataclass(frozen=True)
class TableParts:
    """A table by its ``parts``, which are ``folded`` each for itself under their names: mostly one, called as it is."""

    title: str
    folded: bool
    parts: Mapping[str, TableView]


@dataclass(frozen=True)
class SectionView:
    """``finding`` is what the chapter's contents say of the section."""

    section: Section
    finding: str
    tables: tuple[TableParts, ...]


def section_view(section: Section) -> SectionView:
    finding = section.summary[0] if section.summary else ""
    return SectionView(section, finding, tuple(_table_parts(table) for table in section.tables))


def cell_text(cell: Cell, decimals: int) -> str:
    """``0.61 (0.52 to 0.68)``; the number alone where its interval is not known, ``none`` where there is no number."""
    if isinstance(cell, str):
        return cell
    if cell is None:
        return "–"
    if isinstance(cell, Estimate):
        if not math.isfinite(cell.value) or not (math.isfinite(cell.low) and math.isfinite(cell.high)):
            return cell_text(float(cell.value), decimals)
        low, high = number(cell.low, decimals), number(cell.high, decimals)
        return f"{number(cell.value, decimals)} ({low} to {high})"
    if isinstance(cell, Integral):
        return number(int(cell), 0)
    if math.isnan(cell):
        return "none"
    return number(cell, decimals) if math.isfinite(cell) else "∞" if cell > 0 else "−∞"


def _table_parts(table: Table) -> TableParts:
    folded = len(table.rows) > MOST_ROWS
    subjects = _subjects(table) if folded else {}
    parts = {name: _table_view(part) for name, part in subjects.items()} or {table.title: _table_view(table)}
    return TableParts(table.title, folded, parts)


def _subjects(table: Table) -> dict[str, Table]:
    """A table whose first column says what stretches of its rows are about, such as a property, stretch by stretch and
    without that column; none where the column is of another kind."""
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
        numeric=tuple(_holds_numbers(column) for column in columns),
        rows=tuple(tuple(cell_text(cell, table.decimals) for cell in row) for row in table.rows),
    )


def _holds_numbers(cells: list[Cell]) -> bool:
    return not any(isinstance(cell, str) for cell in cells) and any(cell is not None for cell in cells)
