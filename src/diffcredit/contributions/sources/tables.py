"""Tables beside images, CSV and JSON lines, read row by row. Every error names its line."""

import csv
import json
import unicodedata
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TextIO

from diffcredit.contributions.names import contributor_name
from diffcredit.errors import UserError
from diffcredit.util.sanitize import LONGEST_VALUE, shortened

Row = Mapping[str, Any]

LARGEST_TABLE = 2**30  # bytes
LONGEST_LINE = 1_000_000  # characters
MOST_NAMES = 20  # listed in a message


def rows(table: Path) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a ``.jsonl`` or ``.csv`` file with their line numbers, from 1."""
    with _readable(table):
        yield from _json_rows(table) if table.suffix == ".jsonl" else _csv_rows(table)


def words(table: Path, count: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines, of ``count`` words each, with their numbers from 1; blank lines are skipped."""
    with _readable(table), table.open(encoding="utf-8-sig") as file:
        for line, text in enumerate(_lines(file, table), 1):
            if found := text.split():
                if len(found) != count:
                    raise UserError(f"{table}:{line}: {shortened(text.strip())}; {count} words a line are accepted")
                yield line, found


def value(row: Row, column: str, where: str) -> Any:
    if column not in row:
        raise UserError(f"{where}: no column {column!r}; there are: {listed(row)}")
    return row[column]


def path_within(row: Row, column: str, where: str) -> str:
    """Return the NFC-normalised posix path in ``column``, which must not lead out of its folder."""
    given = value(row, column, where)
    if not isinstance(given, str) or not given.strip():
        raise UserError(f"{where}: {column} {shortened(given)}; the image's path within the folder is accepted")
    path = PurePosixPath(unicodedata.normalize("NFC", given))
    windows = PureWindowsPath(given)
    if path.is_absolute() or windows.drive or windows.root or ".." in path.parts or ".." in windows.parts:
        raise UserError(f"{where}: {column} {shortened(given)} leads out of the folder; paths within it are accepted")
    return path.as_posix()


def contributor_of(given: Any, column: str, image: str, where: str) -> str:
    """Return the contributor that a table's value names, a text or an integer."""
    if given is None or (isinstance(given, str) and not given.strip()):
        raise UserError(f"{where}: {image} is an image without contributor: {column!r} is empty")
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise UserError(f"{where}: {column} {shortened(given)}; a text or an integer is accepted")
    return contributor_name(str(given), where)


def caption_of(given: Any, column: str, where: str) -> str:
    """Return the caption in a table's value, a text or an integer that names a class; "" where there is none."""
    if given is not None and (isinstance(given, bool) or not isinstance(given, str | int)):
        raise UserError(f"{where}: {column} {shortened(given)}; a text or an integer is accepted")
    caption = "" if given is None else str(given)
    if not is_unicode(caption):
        raise UserError(f"{where}: {column} {shortened(caption)} is not valid Unicode")
    return caption


def is_unicode(text: str) -> bool:
    """Whether a text of JSON or of a file system, which may contain lone surrogates, is valid Unicode."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def listed(names: Iterable[object]) -> str:
    """Return the names of columns or arrays that are there, as many as fit into a message."""
    shown = [str(name)[:LONGEST_VALUE] for name in names]
    more = f" and {len(shown) - MOST_NAMES:,} more" if len(shown) > MOST_NAMES else ""
    return (", ".join(shown[:MOST_NAMES]) or "none") + more


def reason_of(error: Exception) -> str:
    """Return an error of another library in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


@contextmanager
def _readable(table: Path) -> Generator[None]:
    try:
        if (size := table.stat().st_size) > LARGEST_TABLE:
            raise UserError(f"{table}: {size:,} bytes; at most {LARGEST_TABLE:,} are accepted")
        yield
    except UnicodeDecodeError as error:
        raise UserError(f"{table}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise UserError(f"{table}: {error.strerror}") from None


def _lines(file: TextIO, table: Path) -> Iterator[str]:
    """Yield the lines; refuse one that is too long before reading all of it."""
    line = 0
    while text := file.readline(LONGEST_LINE + 1):
        line += 1
        if len(text) > LONGEST_LINE:
            raise UserError(f"{table}:{line}: over {LONGEST_LINE:,} characters in a line; fewer are accepted")
        yield text


def _json_rows(table: Path) -> Iterator[tuple[int, Row]]:
    with table.open(encoding="utf-8-sig") as file:
        for line, text in enumerate(_lines(file, table), 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:  # ValueError: a number of thousands of digits
                raise UserError(f"{table}:{line}: not valid JSON: {error}") from None
            if not isinstance(row, dict):
                raise UserError(f"{table}:{line}: {type(row).__name__}; a JSON object a line is accepted")
            yield line, row


def _csv_rows(table: Path) -> Iterator[tuple[int, Row]]:
    with table.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(_lines(file, table), strict=True)
        try:
            columns = next(reader, [])
            if len(set(columns)) != len(columns):
                raise UserError(f"{table}:1: a column is there twice; the columns are: {listed(columns)}")
            for values in reader:
                if not values:
                    continue
                if len(values) != len(columns):
                    raise UserError(f"{table}:{reader.line_num}: {len(values)} values for {len(columns)} columns")
                yield reader.line_num, dict(zip(columns, values, strict=True))
        except csv.Error as error:
            raise UserError(f"{table}:{reader.line_num}: not valid CSV: {error}") from None
