"""The sections of validation as the page shows them."""

import math
from dataclasses import dataclass
from numbers import Integral

from diffcredit.report.numbers import number
from diffcredit.validation.records import Estimate
from diffcredit.validation.sections import Cell, Section, Table

MOST_ROWS = 15  # of a table that is open from the start
TALL = 40  # rows, from which on a table scrolls by itself


@dataclass(frozen=True)
class TableView:
    """A table's cells as texts; ``numeric`` tells of each column whether it holds numbers."""

    title: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def folded(self) -> bool:
        return len(self.rows) > MOST_ROWS

    @property
    def tall(self) -> bool:
        return len(self.rows) > TALL


@dataclass(frozen=True)
class SectionView:
    section: Section
    tables: tuple[TableView, ...]


def section_view(section: Section) -> SectionView:
    return SectionView(section, tuple(_table_view(table) for table in section.tables))


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
