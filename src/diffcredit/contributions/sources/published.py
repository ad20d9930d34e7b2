"""The sets of the published studies, read as their owners distribute them; the contributors follow from the set.

``path`` is the folder that the owners' archive unpacks to, or the one above.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diffcredit.contributions.names import contributor_name
from diffcredit.contributions.sources import Record
from diffcredit.contributions.sources.files import existing, files_below, folder_with, image_record, is_image
from diffcredit.contributions.sources.tables import contributor_of, path_within, rows, value, words
from diffcredit.errors import UserError

CIFAR, CIFAR_PICKLED = "cifar-100-binary", "cifar-100-python"
CIFAR_SIDE = 32
CIFAR_RECORD = 2 + 3 * CIFAR_SIDE * CIFAR_SIDE

CELEBA, CELEBA_IMAGES = "CelebAMask-HQ", "CelebA-HQ-img"
CELEBA_MAPPING, CELEBA_IDENTITIES = "CelebA-HQ-to-CelebA-mapping.txt", "identity_CelebA.txt"
CELEBA_HEADER = ["idx", "orig_idx", "orig_file"]

ARTBENCH = ("artbench-10-imagefolder-split", "artbench-10-imagefolder")
ARTBENCH_TABLE = "ArtBench-10.csv"
ARTBENCH_PARTS = ("train", "test")


@dataclass(frozen=True)
class Cifar100:
    """CIFAR-100; each class of some superclasses stands for a labeler who contributed it.

    It is the "binary version" of https://www.cs.toronto.edu/~kriz/cifar.html: ``cifar-100-binary/`` with ``train.bin``,
    ``test.bin``, ``coarse_label_names.txt`` and ``fine_label_names.txt``. A record is one byte for the superclass, one
    for the class, and 3072 bytes: 32 × 32 red, then green, then blue.
    """

    superclasses: tuple[str, ...] = ("large carnivores", "flowers", "household electrical devices", "vehicles 1")
    """Their names, with spaces or underscores; by default the four of the published study, 20 labelers."""
    caption: Literal["superclass", "class"] | None = None
    """Whether an image's caption is the name of its superclass or of its class; by default it has none."""

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """Return the training images by their classes, and the test images of the same classes as held out."""
        folder = _cifar_folder(existing(path))
        tables = (folder / f"{kind}_label_names.txt" for kind in ("coarse", "fine"))
        coarse, fine = ([contributor_name(n, f"{file}:{line}") for line, (n,) in words(file, 1)] for file in tables)
        if not self.superclasses:
            raise UserError("superclasses: an empty list; at least one name is accepted")
        wanted = []
        for name in self.superclasses:
            spelled = "_".join(name.split()).lower()
            if spelled not in coarse:
                raise UserError(f"superclasses: {name!r} is not in {folder}; there are: {', '.join(coarse)}")
            wanted.append(coarse.index(spelled))
        records = []
        for part in ("train", "test"):
            content = _cifar_records(folder / f"{part}.bin", len(coarse), len(fine))
            rows = np.flatnonzero(np.isin(content[:, 0], wanted))
            for row, (group, label), planes in zip(rows, content[rows, :2], content[rows, 2:], strict=True):
                image = planes.reshape(3, CIFAR_SIDE, CIFAR_SIDE).transpose(1, 2, 0)
                opened = partial(Image.fromarray, np.ascontiguousarray(image))
                caption = {"superclass": coarse[group], "class": fine[label], None: None}[self.caption]
                records.append(Record(f"{part}/{row:08d}", fine[label], opened, caption, part == "test"))
        return records


def _cifar_folder(path: Path) -> Path:
    if not any((place / "train.bin").exists() for place in (path, path / CIFAR)):
        for place in (path, path / CIFAR_PICKLED):
            if (place / "meta").exists():
                found = "the pickled version of CIFAR-100, and a pickle can run any code"
                raise UserError(f"{place}: {found}; the binary version ({CIFAR}) is accepted")
    return folder_with(path, CIFAR, "train.bin")


def _cifar_records(file: Path, coarse: int, fine: int) -> NDArray[np.uint8]:
    """Return (m, 3074) uint8, one record a row."""
    size = existing(file).stat().st_size
    if size == 0 or size % CIFAR_RECORD:
        raise UserError(f"{file}: {size} bytes, no whole number of {CIFAR_RECORD}-byte records; is it truncated?")
    content = np.fromfile(file, np.uint8).reshape(-1, CIFAR_RECORD)
    labels = content[:, :2].max(axis=0)
    if labels[0] >= coarse or labels[1] >= fine:
        named = f"names for {coarse} superclasses and {fine} classes"
        raise UserError(f"{file}: labels up to {labels[0]} and {labels[1]}, but {named}")
    return content


@dataclass(frozen=True)
class CelebAHQ:
    """CelebA-HQ; its identities are the contributors. The published study has ``at_least: 15`` and ``draw: 50``.

    It is read as https://github.com/switchablenorms/CelebAMask-HQ distributes it: ``CelebA-HQ-img/0.jpg`` and so on,
    and ``CelebA-HQ-to-CelebA-mapping.txt`` (``idx orig_idx orig_file``, a header first). The identities come with
    CelebA itself: ``identity_CelebA.txt`` (``000001.jpg 2880``), here or in the folder above.
    """

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """Return the images by the numbers of their identities; every image must have one, and every row its image."""
        folder = folder_with(existing(path), CELEBA, CELEBA_IMAGES)
        mapping = _distinct(folder / CELEBA_MAPPING, len(CELEBA_HEADER))
        originals = {f"{row[0]}.jpg": row[2] for _, row in mapping if row != CELEBA_HEADER}
        table = _here_or_above(folder, CELEBA_IDENTITIES, "it comes with CelebA")
        identities = {row[0]: contributor_name(row[1], f"{table}:{line}") for line, row in _distinct(table, 2)}
        images = folder / CELEBA_IMAGES
        records = []
        for name, file in files_below(images).items():
            if not is_image(file):
                continue
            if name not in originals:
                raise UserError(f"{file}: an image without contributor: {CELEBA_MAPPING} has no row for it")
            original = originals.pop(name)
            if original not in identities:
                raise UserError(f"{file}: an image without contributor: {CELEBA_IDENTITIES} has no row for {original}")
            records.append(image_record(name, identities[original], file, images))
        if originals:
            raise UserError(f"{images / min(originals)}: does not exist, but is listed in {CELEBA_MAPPING}")
        return records


def _distinct(table: Path, columns: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a table and their words; refuse a first word that comes again."""
    seen = set()
    for line, row in words(table, columns):
        if row[0] in seen:
            raise UserError(f"{table}:{line}: {row[0]} is in an earlier line already")
        seen.add(row[0])
        yield line, row


def _here_or_above(folder: Path, name: str, why: str) -> Path:
    """Return the file of that name in ``folder`` or the one above; a refusal ends with ``why`` it is needed."""
    places = [folder / name, folder.parent / name]
    for place in places:
        if place.is_file():
            return place
    raise UserError(f"{places[0]}: does not exist, nor does {places[1]}; {why}")


@dataclass(frozen=True)
class ArtBench:
    """ArtBench-10; the artists of one style, by default that of the published study, are the contributors.

    It is read as https://github.com/liaopeiyuan/artbench distributes it: the 256 × 256 images in
    ``artbench-10-imagefolder-split/SPLIT/STYLE/NAME`` or, without split, ``artbench-10-imagefolder/STYLE/NAME``, and
    the metadata ``ArtBench-10.csv`` beside that folder or in it, of which four columns are used: ``name`` (the file's),
    ``artist``, ``label`` (the style) and ``split`` (train or test).
    """

    style: str = "post_impressionism"

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """Return the training images by their artists, and the test images as held out; each must have a row."""
        path = existing(path)
        images = next((path / name for name in ARTBENCH if (path / name).is_dir()), path)
        metadata = _here_or_above(images, ARTBENCH_TABLE, "it lists the artists")
        table = [(f"{metadata}:{line}", row) for line, row in rows(metadata)]
        styles = {value(row, "label", where) for where, row in table}
        if self.style not in styles:
            raise UserError(f"style: {self.style!r} is not in {metadata}; there are: {', '.join(sorted(styles))}")
        split = any((images / part).is_dir() for part in ARTBENCH_PARTS)
        files = {}
        for folder in [f"{part}/{self.style}" for part in ARTBENCH_PARTS] if split else [self.style]:
            files |= {f"{folder}/{name}": file for name, file in files_below(images / folder).items()}
        records, seen = [], set()
        for where, row in table:
            if row["label"] != self.style:
                continue
            name, part = path_within(row, "name", where), value(row, "split", where)
            if part not in ARTBENCH_PARTS:
                raise UserError(f"{where}: split {part!r}; {' or '.join(ARTBENCH_PARTS)} is accepted")
            identity = f"{part}/{self.style}/{name}"
            place = identity if split else f"{self.style}/{name}"
            if place in seen:
                raise UserError(f"{where}: {place} is in an earlier line already; one row for each image is accepted")
            if place not in files:
                raise UserError(f"{where}: {place} does not exist in {images} (hidden files are not read)")
            seen.add(place)
            artist = contributor_of(value(row, "artist", where), "artist", name, where)
            records.append(image_record(identity, artist, files[place], images, heldout=part == "test"))
        unnamed = sorted(place for place, file in files.items() if place not in seen and is_image(file))
        if unnamed:
            raise UserError(f"{images / unnamed[0]}: an image without contributor: {ARTBENCH_TABLE} has no row for it")
        return records
