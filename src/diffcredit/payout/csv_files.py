"""Tables that a payer hands in as CSV, a contributor a row: balances, taxes."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from unicodedata import normalize

from diffcredit.errors import UserError
from diffcredit.util.sanitize import shortened, unescape_formula

LARGEST = 50_000_000  # bytes


def read_rows(
    file: Path, expected: str, accepted: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a CSV file with their line numbers.

    It must have the column ``contributor`` and one of those ``accepted``, of which a message names the one that is
    ``expected``. No column of these or the ``optional`` ones may be there twice; others are ignored.
    """
    try:
        if file.stat().st_size > LARGEST:
            raise UserError(f"{file}: more than {LARGEST // 10**6} MB; a table of contributors is accepted")
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            columns = [*(reader.fieldnames or ())]
            if "contributor" not in columns or not set(accepted) & set(columns):
                raise UserError(
                    f"{file}: has the columns {shortened(', '.join(columns))}; contributor and {expected} are expected"
                )
            for name in ("contributor", *accepted, *optional):
                if columns.count(name) > 1:
                    raise UserError(f"{file}: has the column {name!r} twice; one is accepted")
            for row in reader:
                if None in row or None in row.values():
                    raise UserError(f"{file}:{reader.line_num}: has another number of cells than the first line")
                yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{file}: cannot be read as CSV ({reason})") from None


def who(row: dict[str, str]) -> str:
    """Return the contributor of a row, spelled as contributors' names are."""
    return normalize("NFC", unescape_formula(row["contributor"].strip()))
