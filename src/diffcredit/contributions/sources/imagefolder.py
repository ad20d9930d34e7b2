"""Hugging Face's ``imagefolder`` layout: images with a ``metadata.jsonl`` or ``metadata.csv`` beside them.

Each row names its image (``file_name``, relative to the metadata file), its contributor (in a column of the user's
choice) and possibly a caption.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from diffcredit.contributions.images import open_image
from diffcredit.contributions.sources import METADATA
from diffcredit.contributions.sources.files import check_inside, existing, files_below, is_image
from diffcredit.contributions.sources.record import Record
from diffcredit.contributions.sources.tables import Row, caption_of, contributor_of, path_within, rows, value
from diffcredit.errors import UserError
from diffcredit.util.sanitize import shortened

TEXT = "text"
"""The usual column of captions; the only one that may be missing."""


@dataclass(frozen=True)
class ImageFolder:
    """Images with a metadata file beside them."""

    caption: str = TEXT
    """The column of the captions."""

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """Return one record for each row of the metadata at ``path``, the folder or its metadata file.

        Every row's image must be in the folder, and every image in the folder must have a row.
        """
        metadata = _metadata_file(existing(path))
        folder = metadata.parent
        files = files_below(folder)
        lines: dict[str, int] = {}
        records = []
        for line, row in rows(metadata):
            where = f"{metadata}:{line}"
            name = path_within(row, "file_name", where)
            if name in lines:
                raise UserError(f"{where}: {name} is in line {lines[name]} already; one row for each image is accepted")
            if name not in files:
                raise UserError(f"{where}: {shortened(name)} does not exist in {folder} (hidden files are not read)")
            check_inside(files[name], folder)
            lines[name] = line
            giver = None
            if contributor is not None:
                giver = contributor_of(value(row, contributor, where), contributor, name, where)
            records.append(Record(name, giver, partial(open_image, files[name]), self._caption(row, where)))
        unnamed = sorted(name for name, file in files.items() if name not in lines and is_image(file))
        if unnamed:
            raise UserError(
                f"{folder / unnamed[0]}: an image without contributor: {metadata.name} has no row for it"
                + (f" (nor for {len(unnamed) - 1} more)" if len(unnamed) > 1 else "")
            )
        return records

    def _caption(self, row: Row, where: str) -> str | None:
        if self.caption == TEXT and TEXT not in row:
            return None
        return caption_of(value(row, self.caption, where), self.caption, where)


def _metadata_file(path: Path) -> Path:
    if path.is_file() and path.name in METADATA:
        return path
    there = [path / name for name in METADATA if (path / name).is_file()]
    if not there:
        raise UserError(f"{path}: no {' or '.join(METADATA)} there")
    if len(there) > 1:
        raise UserError(f"{path}: has both {' and '.join(METADATA)}; one is accepted")
    return there[0]
