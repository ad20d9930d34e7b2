"""Credits as CSV, for spreadsheets and programs."""

import csv
import io
import math
from collections.abc import Iterable
from pathlib import Path

from diffcredit.report.records import INTERVALS, CreditTable
from diffcredit.report.standings import standings
from diffcredit.util.artifacts import write_text
from diffcredit.util.sanitize import escape_formula

COLUMNS = ("rank", "contributor", "images", "property", "credit", "low", "high", "share", *INTERVALS)


def credits_csv(tables: Iterable[CreditTable]) -> str:
    """Return RFC 4180 text: one row for each contributor and property, most helpful first within a property.

    Numbers have all their digits. Unknown bounds are empty, and so is ``share`` where F(N) − F(∅) is 0 or the credits
    do not sum to it.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for table in tables:
        for row in standings(table):
            writer.writerow(
                (
                    row.rank,
                    escape_formula(row.contributor),
                    row.images,
                    escape_formula(table.property),
                    *map(_cell, (row.credit, row.low, row.high, row.share)),
                    *(_cell(getattr(row, name)) for name in INTERVALS),
                )
            )
    return file.getvalue()


def _cell(number: float | None) -> str:
    return repr(number) if number is not None and math.isfinite(number) else ""


def write_credits_csv(tables: Iterable[CreditTable], path: Path) -> None:
    write_text(path, credits_csv(tables))
