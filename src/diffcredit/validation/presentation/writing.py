"""Sections as files: tables as CSV, figures as SVG, photographs as PNG, and how to read them back."""

import json
import math
import re
import shutil
import tempfile
from numbers import Integral
from pathlib import Path
from typing import Any

from diffcredit.errors import UserError, located
from diffcredit.util.artifacts import atomic_folder, canonical_json
from diffcredit.util.sanitize import csv_text
from diffcredit.validation.presentation.sections import Cell, Figure, Photograph, Section, Table
from diffcredit.validation.statistics.records import Estimate

SECTION = "section.json"
_FILE_NAME = re.compile(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")


def write_section(section: Section, folder: Path) -> None:
    """Write ``section`` to ``folder`` in place of an earlier one: words and cells in ``section.json``, and beside it a
    CSV, SVG or PNG file for each table, figure and photograph, called by its name."""
    files = files_of(section)
    if folder.exists() and not (folder / SECTION).is_file():
        raise UserError(f"{folder}: exists and holds no {SECTION}; a folder of a section is replaced, no other")
    with atomic_folder(folder) as fresh:
        for name, content in files.items():
            (fresh / name).write_bytes(content)
        if folder.exists():  # clear the place in one step, so that readers see the old section whole or none
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part") as bin_:
                shutil.move(folder, Path(bin_) / folder.name)


def files_of(section: Section) -> dict[str, bytes]:
    """Return the content of a section's files by name."""
    return dict(_files(section)) | {SECTION: canonical_json(_content(section)).encode()}


def read_section(folder: Path) -> Section:
    """Read what `write_section` wrote to ``folder``. The folder may be a stranger's: names that lead out of it and
    links are refused."""
    file = folder / SECTION
    try:
        section = _section(json.loads(file.read_text(encoding="utf-8")), folder)
        with located(file):
            _files(section)
        return section
    except FileNotFoundError as error:
        raise UserError(f"{error.filename}: not found; a section is {SECTION} and the files that it names") from None
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{file}: not a section ({type(error).__name__}: {error})") from None


def table_csv(table: Table) -> str:
    """Write a table by `csv_text`. A column with estimates becomes three: its name, ``… low`` and ``… high``."""
    wide = [any(isinstance(row[i], Estimate) for row in table.rows) for i in range(len(table.columns))]
    header = zip(table.columns, wide, strict=True)
    names = ((name, f"{name} low", f"{name} high") if three else (name,) for name, three in header)
    rows = ([part for cell, three in zip(row, wide, strict=True) for part in _parts(cell, three)] for row in table.rows)
    return csv_text([[name for some in names for name in some], *rows])


def _parts(cell: Cell, three: bool) -> tuple[str | float | None, ...]:
    if isinstance(cell, Estimate):
        return cell.value, cell.low, cell.high
    return (cell, None, None) if three else (cell,)


def _files(section: Section) -> list[tuple[str, bytes]]:
    """Return the files beside ``section.json`` with their content. Raises UserError where a section has no files."""
    where = f"section {section.part!r}"
    for table in section.tables:
        for row in table.rows:
            if len(row) != len(table.columns):
                raise UserError(
                    f"table {table.name!r}: a row of {len(row)} cells, expected {len(table.columns)}: {row!r:.80}"
                )
    files = [
        *((f"{table.name}.csv", table_csv(table).encode()) for table in section.tables),
        *((f"{figure.name}.svg", figure.svg.encode()) for figure in section.figures),
        *((f"{photograph.name}.png", photograph.png) for photograph in section.photographs),
    ]
    folded = [name.casefold() for name, _ in files]  # some file systems do not distinguish case
    for name, _ in files:
        if not _FILE_NAME.fullmatch(name.rpartition(".")[0]):
            raise UserError(f"{where}: {_not_a_name(name)}")
        if folded.count(name.casefold()) > 1:
            raise UserError(f"{where}: {name!r} is there twice; names must differ")
    return files


def _not_a_name(text: str) -> str:
    return f"{text!r:.80} is no file's name; letters, digits, - and _ are accepted"


def _content(section: Section) -> dict[str, Any]:
    def words(picture: Figure | Photograph) -> dict[str, str]:
        return {"name": picture.name, "title": picture.title, "caption": picture.caption}

    return {
        **vars(section),
        "tables": [
            {**vars(table), "rows": [[_kept(cell) for cell in row] for row in table.rows]} for table in section.tables
        ],
        "figures": [words(figure) for figure in section.figures],
        "photographs": [words(photograph) for photograph in section.photographs],
    }


def _section(content: dict[str, Any], folder: Path) -> Section:
    return Section(
        part=content["part"],
        title=content["title"],
        summary=tuple(content["summary"]),
        tables=tuple(map(_table, content["tables"])),
        figures=tuple(
            Figure(**each, svg=_picture(folder, each["name"], ".svg").decode()) for each in content["figures"]
        ),
        photographs=tuple(
            Photograph(**each, png=_picture(folder, each["name"], ".png")) for each in content["photographs"]
        ),
        caveats=tuple(content["caveats"]),
    )


def _table(content: dict[str, Any]) -> Table:
    columns, rows = tuple(content["columns"]), tuple(tuple(map(_cell, row)) for row in content["rows"])
    return Table(content["name"], content["title"], columns, rows, content["decimals"])


def _picture(folder: Path, name: str, suffix: str) -> bytes:
    if not _FILE_NAME.fullmatch(name):
        raise ValueError(_not_a_name(name))
    file = folder / f"{name}{suffix}"
    if file.is_symlink():
        raise ValueError(f"{file.name!r} is a link; only a file of the folder's own is accepted")
    return file.read_bytes()


def _kept(cell: Cell) -> Any:
    """Return a cell for JSON, which has no NaN and no infinity: these become ``{"number": "nan"}``."""
    if isinstance(cell, Estimate):
        return {"estimate": [_kept(number) for number in (cell.value, cell.low, cell.high)]}
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, Integral):
        return int(cell)
    return float(cell) if math.isfinite(cell) else {"number": repr(float(cell))}


def _cell(kept: Any) -> Any:
    if not isinstance(kept, dict):
        return kept
    if "estimate" in kept:
        return Estimate(*(_cell(number) for number in kept["estimate"]))
    return float(kept["number"])
