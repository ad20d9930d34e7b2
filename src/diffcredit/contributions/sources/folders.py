"""Folders of images: one for each contributor, Hugging Face's ``imagefolder`` layout, and the bundled emoji."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from diffcredit.contributions.names import contributor_name
from diffcredit.contributions.sources import METADATA, Record
from diffcredit.contributions.sources.files import existing, files_below, image_record, is_image
from diffcredit.contributions.sources.tables import caption_of, contributor_of, path_within, rows, value
from diffcredit.errors import UserError
from diffcredit.util.sanitize import shortened

TEXT = "text"  # the usual column of captions; the only one that may be missing
BUNDLED = Path(__file__).parent.parent / "openmoji"


@dataclass(frozen=True)
class Folders:
    """A folder for each contributor, with images at any depth below it."""

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """Return the images below ``path``; the top folder is the contributor unless ``contributor`` is None.

        A contributor's folder without any image is an error: somebody would be left out silently.
        """
        path = existing(path)
        records = []
        for name, file in files_below(path).items():
            if not is_image(file):
                continue
            giver = None
            if contributor is not None:
                folder, slash, _ = name.partition("/")
                if not slash:
                    raise UserError(f"{file}: an image without contributor; put it in its contributor's folder")
                giver = contributor_name(folder, str(file))
            records.append(image_record(name, giver, file, path))
        if contributor is not None:
            given = {record.contributor for record in records}
            for folder in sorted(path.iterdir()):
                visible = folder.is_dir() and not folder.name.startswith(".")
                if visible and contributor_name(folder.name, str(folder)) not in given:
                    raise UserError(f"{folder}: a contributor's folder without images; add images or remove it")
        return records


@dataclass(frozen=True)
class ImageFolder:
    """Images with a ``metadata.jsonl`` or ``metadata.csv`` beside them.

    Each row names its image (``file_name``, relative to the metadata file), its contributor (in a column of the user's
    choice) and possibly a caption.
    """

    caption: str = TEXT
    """The column of the captions: texts, or integers that name classes."""

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """Return one record for each row; every row must have its image in the folder, and every image its row."""
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
            lines[name] = line
            giver = None
            if contributor is not None:
                giver = contributor_of(value(row, contributor, where), contributor, name, where)
            caption = None
            if self.caption != TEXT or TEXT in row:
                caption = caption_of(value(row, self.caption, where), self.caption, where)
            records.append(image_record(name, giver, files[name], folder, caption=caption))
        unnamed = sorted(name for name, file in files.items() if name not in lines and is_image(file))
        if unnamed:
            more = f" (nor for {len(unnamed) - 1} more)" if len(unnamed) > 1 else ""
            what = "an image without contributor"
            raise UserError(f"{folder / unnamed[0]}: {what}: {metadata.name} has no row for it{more}")
        return records


def _metadata_file(path: Path) -> Path:
    if path.is_file() and path.name in METADATA:
        return path
    there = [path / name for name in METADATA if (path / name).is_file()]
    if not there:
        raise UserError(f"{path}: no {' or '.join(METADATA)} there")
    if len(there) > 1:
        raise UserError(f"{path}: has both {' and '.join(METADATA)}; one is accepted")
    return there[0]


@dataclass(frozen=True)
class OpenMoji:
    """Emoji by twelve designers of OpenMoji (CC BY-SA 4.0, see ATTRIBUTION.md there); nothing is downloaded."""

    part: Literal["designers", "house"] = "designers"
    """The twelve designers' emoji, or 36 by others, for house images."""

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """Return the emoji of ``images`` by their designers, and those of ``heldout`` as held out; or ``house``."""
        if path is not None:
            raise UserError(f"path: {path}; the source openmoji is bundled and takes no path")
        if self.part == "house":
            return ImageFolder()(BUNDLED / "house", contributor)
        kept_out = Folders()(BUNDLED / "heldout", None)
        return ImageFolder()(BUNDLED / "images", contributor) + [replace(record, heldout=True) for record in kept_out]
