"""Dates of images, by which the first of several near-copies is known."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from diffcredit.contributions.sources import METADATA
from diffcredit.contributions.sources.tables import path_within, rows, value
from diffcredit.errors import UserError, located
from diffcredit.util.sanitize import shortened

KEY = "near_copies.dates"
NAME = "file_name"  # the column of the images


def dates_file(given: str | Path | None, images: Path | None) -> Path:
    """Return the file of the dates: the one that is ``given``, or the metadata of the ``images``."""
    if given is not None:
        if not Path(given).is_file():
            raise UserError(f"{KEY}: {given}: no file there; a CSV or JSON lines file of dates is accepted")
        return Path(given)
    if images is not None:
        here = [images] if images.name in METADATA else [images / name for name in METADATA]
        for file in here:
            if file.is_file():
                return file
    raise UserError(
        f"{KEY}: missing; credit: first needs the images' dates: a CSV or JSON lines file with the columns {NAME} and "
        "date is accepted"
    )


def read_dates(file: Path, column: str) -> dict[str, datetime]:
    """Return the date in ``column`` of each image of a table; images whose cell is empty have none."""
    found: dict[str, datetime] = {}
    lines: dict[str, int] = {}
    with located(KEY):
        for line, row in rows(file):
            where = f"{file}:{line}"
            name = path_within(row, NAME, where)
            if name in lines:
                raise UserError(f"{where}: {name} is in line {lines[name]} already; one row for each image is accepted")
            lines[name] = line
            given = value(row, column, where)
            if given not in (None, ""):
                found[name] = _date(given, column, where)
    return found


def date_of(name: str, dates: Mapping[str, datetime], file: Path, column: str) -> datetime:
    """Return an image's date; refuse one without."""
    if name not in dates:
        raise UserError(
            f"{KEY}: {file}: no {column} of {shortened(name)}, of which another contributor gave a near-copy; "
            "a date such as 2026-03-31 is accepted"
        )
    return dates[name]


def _date(given: object, column: str, where: str) -> datetime:
    try:
        found = datetime.fromisoformat(given.strip()) if isinstance(given, str) else None
    except ValueError:
        found = None
    if found is None:
        raise UserError(
            f"{where}: {column} {shortened(given)}; a date such as 2026-03-31 or 2026-03-31T12:00 is accepted"
        )
    return found if found.tzinfo else found.replace(tzinfo=UTC)
