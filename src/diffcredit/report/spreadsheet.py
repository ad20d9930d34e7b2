"""Credits as CSV, for spreadsheets and programs."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from diffcredit.artifacts import write_text
from diffcredit.csvtext import neutralise
from diffcredit.report.records import CreditTable
from diffcredit.report.standings import standings

COLUMNS = ("rank", "contributor", "images", "property", "credit", "low", "high", "share")


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
