"""The files of a folder: never outside it, and never in the file system's order."""

import os
import unicodedata
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from diffcredit.contributions.images import ENDINGS, open_image
from diffcredit.contributions.sources import Record
from diffcredit.contributions.sources.tables import is_unicode
from diffcredit.errors import UserError
from diffcredit.util.links import real_path


def existing(path: Path | None) -> Path:
    """Return ``path``; refuse one that is missing or does not exist."""
    if path is None:
        raise UserError("path: missing; the source reads a path (only openmoji is bundled)")
    if not path.exists():
        raise UserError(f"{path}: does not exist")
    return path


def folder_with(path: Path, child: str, content: str) -> Path:
    """Return the folder that has ``content``: ``path`` or, as archives unpack, its subfolder ``child``."""
    for folder in (path, path / child):
        if (folder / content).exists():
            return folder
    raise UserError(f"{path}: no {content} there, nor in {child}")


def files_below(root: Path) -> dict[str, Path]:
    """Return every file at any depth by its relative, NFC-normalised posix path.

    Hidden files and folders are ignored. A linked folder is refused: it leads outside, or gives the same images twice.
    """
    if not root.is_dir():
        raise UserError(f"{root}: not a folder")
    found: dict[str, Path] = {}
    for folder, subfolders, files in os.walk(root, onerror=_refuse):
        here = Path(folder)
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in subfolders:
            if (here / name).is_symlink():
                raise UserError(f"{here / name}: a link to a folder; folders themselves are accepted")
        for name in files:
            if not name.startswith("."):
                path = here / name
                identity = unicodedata.normalize("NFC", path.relative_to(root).as_posix())
                if not is_unicode(identity):
                    raise UserError(f"{str(path)!a}: the file name is not valid UTF-8; rename the file")
                if identity in found:
                    raise UserError(f"{path}: another file has the same name in another Unicode form; rename one")
                found[identity] = path
    return found


def is_image(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


def image_record(name: str, contributor: str | None, file: Path, root: Path, **more: Any) -> Record:
    """Return the record of a file of ``files_below(root)``; refuse a link out of ``root``. Its folders are no links."""
    if file.is_symlink() and not real_path(file).is_relative_to(real_path(root)):
        raise UserError(f"{file}: a link that leads out of {root}; files inside it are accepted")
    return Record(name, contributor, partial(open_image, file), **more)


def _refuse(error: OSError) -> NoReturn:
    raise UserError(f"{error.filename}: {error.strerror}")
