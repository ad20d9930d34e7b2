"""ArtBench-10; its artists are the contributors.

It is read as its authors distribute it (https://github.com/liaopeiyuan/artbench): the 256 × 256 images in
``artbench-10-imagefolder-split/SPLIT/STYLE/NAME`` or, without split, ``artbench-10-imagefolder/STYLE/NAME``, and the
metadata ``ArtBench-10.csv`` beside that folder or in it. Four columns of the metadata are used: ``name`` (the file's),
``artist``, ``label`` (the style) and ``split`` (train or test). Files and rows are matched by name.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from diffcredit.contributions.images import open_image
from diffcredit.contributions.sources.files import check_inside, existing, files_below, is_image
from diffcredit.contributions.sources.record import Record
from diffcredit.contributions.sources.tables import contributor_of, path_within, rows, value
from diffcredit.errors import UserError

METADATA = "ArtBench-10.csv"
SPLIT, WHOLE = "artbench-10-imagefolder-split", "artbench-10-imagefolder"
SPLITS = ("train", "test")


@dataclass(frozen=True)
class ArtBench:
    """The paintings of one style; by default the style of the published study."""

    style: str = "post_impressionism"

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """Return the training images by their artists, and the test images as held out.

        ``path`` is the folder of the images or the one above. Every image of the style must have a row, and every row
        of the style its image. Artists are named unless ``contributor`` is None.
        """
        images = _images(existing(path))
        metadata = _metadata(images)
        table = [(f"{metadata}:{line}", row) for line, row in rows(metadata)]
        styles = {value(row, "label", where) for where, row in table}
        if self.style not in styles:
            raise UserError(f"style: {self.style!r} is not in {metadata}; there are: {', '.join(sorted(styles))}")
        split = any((images / part).is_dir() for part in SPLITS)
        files = {}
        for folder in [f"{part}/{self.style}" for part in SPLITS] if split else [self.style]:
            files |= {f"{folder}/{name}": file for name, file in files_below(images / folder).items()}
        records, seen = [], set()
        for where, row in table:
            if row["label"] != self.style:
                continue
            name, part = path_within(row, "name", where), value(row, "split", where)
            if part not in SPLITS:
                raise UserError(f"{where}: split {part!r}; {' or '.join(SPLITS)} is accepted")
            identity = f"{part}/{self.style}/{name}"
            place = identity if split else f"{self.style}/{name}"
            if place in seen:
                raise UserError(f"{where}: {place} is in an earlier line already; one row for each image is accepted")
            if place not in files:
                raise UserError(f"{where}: {place} does not exist in {images} (hidden files are not read)")
            check_inside(files[place], images)
            seen.add(place)
            giver = None
            if contributor is not None:
                giver = contributor_of(value(row, "artist", where), "artist", name, where)
            records.append(Record(identity, giver, partial(open_image, files[place]), heldout=part == "test"))
        unnamed = sorted(place for place, file in files.items() if place not in seen and is_image(file))
        if unnamed:
            raise UserError(f"{images / unnamed[0]}: an image without contributor: {METADATA} has no row for it")
        return records


def _images(path: Path) -> Path:
    """Return the folder of the images: ``path`` itself, or one of the two that the archives unpack to."""
    return next((path / name for name in (SPLIT, WHOLE) if (path / name).is_dir()), path)


def _metadata(images: Path) -> Path:
    places = [images / METADATA, images.parent / METADATA]
    for place in places:
        if place.is_file():
            return place
    raise UserError(f"{places[0]}: does not exist, nor does {places[1]}; it lists the artists")
