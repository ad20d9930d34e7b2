"""Credits as CSV, for spreadsheets and programs.

A name is data, yet a spreadsheet runs a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line
break as a formula. Such names, also behind white space, get one leading apostrophe, which spreadsheets show
as text. Names that already carry apostrophes before such a character get one more, so that no two names ever
become one: to undo, drop the first apostrophe wherever one of these characters follows it.
"""

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path

from diffcredit.artifacts import write_text
from diffcredit.report.records import CreditTable
from diffcredit.report.standings import standings

COLUMNS = ("rank", "contributor", "images", "property", "credit", "low", "high", "share")

# the full-width signs too: some spreadsheets fold them into the ordinary ones
_FORMULA = re.compile(r"[\s']*[=+\-@＝＋－＠\t\r\n]")


def neutralise(text: str) -> str:
    """``text`` such that no spreadsheet takes it for a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def credits_csv(tables: Iterable[CreditTable]) -> str:
    """One row a contributor and property, most helpful first within each property; RFC 4180.

    Numbers have all their digits. ``low`` and ``high`` are empty where no interval is known, ``share`` where
    F(N) − F(∅) is 0.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for table in tables:
        for row in standings(table):
            bounds = (repr(row.low), repr(row.high)) if row.interval_known else ("", "")
            writer.writerow(
                (
                    row.rank,
                    neutralise(row.contributor),
                    row.images,
                    neutralise(table.property),
                    repr(row.credit),
                    *bounds,
                    "" if row.share is None else repr(row.share),
                )
            )
    return file.getvalue()


def write_credits_csv(tables: Iterable[CreditTable], path: Path) -> None:
    write_text(path, credits_csv(tables))
