"""A study as one file: a zip of ``study.json`` and of two Parquet tables, ``evaluations`` and ``values``.

Every row carries its ``number`` in the chain. Any tool that knows Parquet can read the tables. Together with
``study.json`` they suffice to write the study's rows into another ledger with the same head. The study's models may be
included below ``models/``: files of weights and settings, never code.

An archive may come from a stranger: sizes and names are checked before anything is unpacked.
"""

import json
import shutil
import zipfile
import zlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from diffcredit.errors import UserError
from diffcredit.ledger.parquet import check_items, parquet_file, rows_of
from diffcredit.ledger.recording import Rows
from diffcredit.util.artifacts import atomic_file, atomic_folder
from diffcredit.util.store import artifacts_in, is_name

FORMAT = 1
DESCRIPTION = "study.json"
TABLES = {"evaluation": "evaluations.parquet", "value": "values.parquet"}  # by kind of row; others are in study.json
LARGEST = 500_000_000  # bytes of one unpacked table
LARGEST_DESCRIPTION = 100_000_000
MODELS = "models/"
MODEL_FILES = (".safetensors", ".json", ".txt")

# what reading a file that is no archive of ours may raise; RuntimeError: an encrypted one
_DAMAGES = (zipfile.BadZipFile, zlib.error, ValueError, LookupError, TypeError, AttributeError, EOFError, RuntimeError)


def write_archive(file: Path, rows: Rows, head: str, study: Mapping[str, Any], models: Path | None = None) -> None:
    """Write an archive of ``rows`` with their ``head``, the content of the ``study`` file and, if given, the folder
    ``models``."""
    found = {} if models is None else _model_files(models)
    numbered = [(number, kind, row) for number, (kind, row) in enumerate(rows, 1)]
    others = [{"number": number, "kind": kind, "row": row} for number, kind, row in numbered if kind not in TABLES]
    description = {"format": FORMAT, "head": head, "study": dict(study), "rows": others}
    with atomic_file(file) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(DESCRIPTION, json.dumps(description, indent=1, ensure_ascii=False, allow_nan=False))
        for table, name in TABLES.items():
            these = [(number, row) for number, kind, row in numbered if kind == table]
            archive.writestr(name, parquet_file(table, these))
        for name, path in found.items():
            archive.write(path, f"{MODELS}{name}", zipfile.ZIP_STORED)


def read_archive(file: Path) -> tuple[Rows, str, dict[str, Any]]:
    """Return the rows, their head and the study file's content. Raise a UserError for anything but an archive."""
    with _opened(file, "cannot be read") as archive:
        text = _member(archive, DESCRIPTION, LARGEST_DESCRIPTION).decode()
        check_items(text, DESCRIPTION)
        description = json.loads(text)
        if description["format"] != FORMAT:
            raise ValueError(f"format {description['format']!r}; this diffcredit knows {FORMAT}")
        numbered = {each["number"]: (each["kind"], dict(each["row"])) for each in description["rows"]}
        for table, name in TABLES.items():
            numbered |= {row.pop("number"): (table, row) for row in rows_of(table, _member(archive, name, LARGEST))}
        rows = [numbered[number] for number in range(1, len(numbered) + 1)]
        return rows, str(description["head"]), dict(description["study"])


def restore_models(file: Path, folder: Path) -> int:
    """Unpack the models of an archive as ``folder``, which must not exist; return the number of files."""
    with _opened(file, "its models cannot be restored") as archive:
        members = [member for member in archive.infolist() if member.filename.startswith(MODELS)]
        names = [member.filename.removeprefix(MODELS) for member in members]
        if wrong := [name for name in names if not _is_model_file(name)]:
            raise ValueError(f"{MODELS}{wrong[0][:100]!r}: names of {', '.join(MODEL_FILES)} are accepted")
        if len(set(names)) < len(names):
            raise ValueError("a model's file is there twice")
        # stored without compression, they cannot be larger than the archive itself
        if any(each.compress_type != zipfile.ZIP_STORED for each in members):
            raise ValueError("models must be packed without compression")
        if sum(member.file_size for member in members) > file.stat().st_size:
            raise ValueError("its models would be larger than the archive itself")
        if not members:
            return 0
        with atomic_folder(folder) as temporary:
            for name, member in zip(names, members, strict=True):
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, (temporary / name).open("xb") as target:
                    shutil.copyfileobj(source, target)
        return len(members)


@contextmanager
def _opened(file: Path, problem: str) -> Generator[zipfile.ZipFile]:
    """Open an archive; turn whatever reading it raises into a UserError that names the file."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except OSError as error:
        raise UserError(f"{file}: {problem} ({error.strerror or error})") from error
    except _DAMAGES as error:
        raise UserError(f"{file}: is no archive of diffcredit export, or a damaged one ({error})") from error


def _model_files(folder: Path) -> dict[str, Path]:
    """Return the files of all complete artifacts in ``folder``, by their names below it."""
    found = {}
    for artifact in artifacts_in(folder):
        path = folder / artifact
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if each.is_file():
                found[each.relative_to(folder).as_posix()] = each
    if wrong := [name for name in found if not _is_model_file(name)]:
        raise UserError(f"{found[wrong[0]]}: does not go into an archive; {', '.join(MODEL_FILES)} are accepted")
    return found


def _is_model_file(name: str) -> bool:
    return is_name(name) and PurePosixPath(name).suffix in MODEL_FILES


def _member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Return the content of one file in the archive, of at most so many bytes."""
    size = archive.getinfo(name).file_size
    if size > most:
        raise ValueError(f"{name} would have {size:,} bytes; at most {most:,} are accepted")
    with archive.open(name) as member:
        content = member.read(size + 1)
    if len(content) != size:
        raise ValueError(f"{name} has another size than the archive states")
    return content
