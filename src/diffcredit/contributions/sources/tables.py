"""Tables that stand beside images: CSV and JSON lines, read row by row, every error with its line."""

import csv
import json
import unicodedata
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from diffcredit.contributions.names import contributor_name
from diffcredit.errors import UserError

Row = Mapping[str, Any]


def rows(table: Path) -> Iterator[tuple[int, Row]]:
    """The rows of a ``.jsonl`` or ``.csv`` file with their line numbers, from 1."""
    with _readable(table):
        yield from _json_rows(table) if table.suffix == ".jsonl" else _csv_rows(table)


def words(table: Path, count: int) -> Iterator[tuple[int, list[str]]]:
    """The lines of ``count`` words each, with their numbers from 1; blank lines are passed over."""
    with _readable(table), table.open(encoding="utf-8-sig") as file:
        for line, text in enumerate(file, 1):
            if found := text.split():
                if len(found) != count:
                    raise UserError(f"{table}:{line}: {text.strip()!r}; {count} words a line are accepted")
                yield line, found


def value(row: Row, column: str, where: str) -> Any:
    if column not in row:
        raise UserError(f"{where}: no column {column!r}; there are: {', '.join(map(str, row)) or 'none'}")
    return row[column]


def path_within(row: Row, column: str, where: str) -> str:
    """The NFC-normalised posix path in ``column``, which must not lead out of the folder it starts from."""
    given = value(row, column, where)
    if not isinstance(given, str) or not given.strip():
        raise UserError(f"{where}: {column} {given!r}; the image's path within the folder is accepted")
    path = PurePosixPath(unicodedata.normalize("NFC", given))
    windows = PureWindowsPath(given)
    if path.is_absolute() or windows.drive or windows.root or ".." in path.parts or ".." in windows.parts:
        raise UserError(f"{where}: {column} {given!r} leads out of the folder; paths within it are accepted")
    return path.as_posix()


def contributor_of(given: Any, column: str, image: str, where: str) -> str:
    """The contributor that a table's value names, a text or an integer."""
    if given is None or (isinstance(given, str) and not given.strip()):
        raise UserError(f"{where}: {image} is an image without contributor: {column!r} is empty")
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise UserError(f"{where}: {column} {given!r}; a text or an integer is accepted")
    return contributor_name(str(given), where)


def caption_of(given: Any, column: str, where: str) -> str:
    if given is not None and not isinstance(given, str):
        raise UserError(f"{where}: {column} {given!r}; a text is accepted")
    return given or ""


@contextmanager
def _readable(table: Path) -> Generator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise UserError(f"{table}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise UserError(f"{table}: {error.strerror}") from None


def _json_rows(table: Path) -> Iterator[tuple[int, Row]]:
    with table.open(encoding="utf-8-sig") as file:
        for line, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except (json.JSONDecodeError, RecursionError) as error:
                raise UserError(f"{table}:{line}: not valid JSON: {error}") from None
            if not isinstance(row, dict):
                raise UserError(f"{table}:{line}: {type(row).__name__}; a JSON object a line is accepted")
            yield line, row


def _csv_rows(table: Path) -> Iterator[tuple[int, Row]]:
    with table.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            columns = next(reader, [])
            if len(set(columns)) != len(columns):
                raise UserError(f"{table}:1: a column stands twice; the columns are: {', '.join(columns)}")
            for values in reader:
                if not values:
                    continue
                if len(values) != len(columns):
                    raise UserError(f"{table}:{reader.line_num}: {len(values)} values for {len(columns)} columns")
                yield reader.line_num, dict(zip(columns, values, strict=True))
        except csv.Error as error:
            raise UserError(f"{table}:{reader.line_num}: not valid CSV: {error}") from None
