"""Hugging Face's ``imagefolder`` layout: images with a ``metadata.jsonl`` or ``metadata.csv`` beside them.

Each row names its image (``file_name``, relative to the metadata file), its contributor (a column of the
user's choice) and perhaps a caption (``text``).
"""

import csv
import json
import unicodedata
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from diffcredit.contributions.images import open_image
from diffcredit.contributions.names import contributor_name
from diffcredit.contributions.sources.files import check_inside, files_below, is_image
from diffcredit.contributions.sources.record import Record
from diffcredit.errors import UserError

METADATA = ("metadata.jsonl", "metadata.csv")


def imagefolder(path: Path, contributor: str | None) -> list[Record]:
    """One record a row of the metadata at ``path``, which is the folder or its metadata file.

    Every row's image must lie in the folder, and every image in the folder must have a row.
    """
    metadata = _metadata_file(path)
    folder = metadata.parent
    files = files_below(folder)
    lines: dict[str, int] = {}
    records = []
    for line, row in _rows(metadata):
        where = f"{metadata}:{line}"
        name = _file_name(row, where)
        if name in lines:
            raise UserError(f"{where}: {name} stands in line {lines[name]} already; one row an image is accepted")
        if name not in files:
            raise UserError(f"{where}: {name} does not exist in {folder} (hidden files are not read)")
        check_inside(files[name], folder)
        lines[name] = line
        giver = None if contributor is None else _contributor(row, contributor, name, where)
        records.append(Record(name, giver, partial(open_image, files[name]), _caption(row, where)))
    unnamed = sorted(name for name, file in files.items() if name not in lines and is_image(file))
    if unnamed:
        raise UserError(
            f"{folder / unnamed[0]}: an image without contributor: {metadata.name} has no row for it"
            + (f" (nor for {len(unnamed) - 1} more)" if len(unnamed) > 1 else "")
        )
    return records


def _metadata_file(path: Path) -> Path:
    if path.is_file() and path.name in METADATA:
        return path
    there = [path / name for name in METADATA if (path / name).is_file()]
    if not there:
        raise UserError(f"{path}: no {' or '.join(METADATA)} there")
    if len(there) > 1:
        raise UserError(f"{path}: holds both {' and '.join(METADATA)}; one is accepted")
    return there[0]


def _rows(metadata: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows with their line numbers, from 1."""
    read = _json_rows if metadata.suffix == ".jsonl" else _csv_rows
    try:
        yield from read(metadata)
    except UnicodeDecodeError as error:
        raise UserError(f"{metadata}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise UserError(f"{metadata}: {error.strerror}") from None


def _json_rows(metadata: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with metadata.open(encoding="utf-8-sig") as file:
        for line, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except (json.JSONDecodeError, RecursionError) as error:
                raise UserError(f"{metadata}:{line}: not valid JSON: {error}") from None
            if not isinstance(row, dict):
                raise UserError(f"{metadata}:{line}: {type(row).__name__}; a JSON object a line is accepted")
            yield line, row


def _csv_rows(metadata: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with metadata.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            columns = next(reader, [])
            if len(set(columns)) != len(columns):
                raise UserError(f"{metadata}:1: a column stands twice; the columns are: {', '.join(columns)}")
            for values in reader:
                if not values:
                    continue
                if len(values) != len(columns):
                    raise UserError(f"{metadata}:{reader.line_num}: {len(values)} values for {len(columns)} columns")
                yield reader.line_num, dict(zip(columns, values, strict=True))
        except csv.Error as error:
            raise UserError(f"{metadata}:{reader.line_num}: not valid CSV: {error}") from None


def _value(row: Mapping[str, Any], column: str, where: str) -> Any:
    if column not in row:
        raise UserError(f"{where}: no column {column!r}; there are: {', '.join(map(str, row)) or 'none'}")
    return row[column]


def _file_name(row: Mapping[str, Any], where: str) -> str:
    value = _value(row, "file_name", where)
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{where}: file_name {value!r}; the image's path within the folder is accepted")
    path = PurePosixPath(unicodedata.normalize("NFC", value))
    windows = PureWindowsPath(value)
    if path.is_absolute() or windows.drive or windows.root or ".." in path.parts or ".." in windows.parts:
        raise UserError(f"{where}: file_name {value!r} leads out of the folder; paths within it are accepted")
    return path.as_posix()


def _contributor(row: Mapping[str, Any], column: str, name: str, where: str) -> str:
    value = _value(row, column, where)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise UserError(f"{where}: {name} is an image without contributor: {column!r} is empty")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UserError(f"{where}: {column} {value!r}; a text or an integer is accepted")
    return contributor_name(str(value), where)


def _caption(row: Mapping[str, Any], where: str) -> str | None:
    if "text" not in row:
        return None
    text = row["text"]
    if text is not None and not isinstance(text, str):
        raise UserError(f"{where}: text {text!r}; a text is accepted")
    return text or ""
