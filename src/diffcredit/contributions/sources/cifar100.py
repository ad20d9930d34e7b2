"""CIFAR-100; each class stands for a labeler who contributed it.

It is read as its owners distribute it (https://www.cs.toronto.edu/~kriz/cifar.html, "binary version"):
``cifar-100-binary/`` with ``train.bin``, ``test.bin``, ``coarse_label_names.txt`` and ``fine_label_names.txt``.
A record is one byte for the superclass, one for the class, and 3072 bytes: 32 × 32 red, then green, then blue.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diffcredit.contributions.names import contributor_name
from diffcredit.contributions.sources.files import existing, folder_with
from diffcredit.contributions.sources.record import Record
from diffcredit.contributions.sources.tables import words
from diffcredit.errors import UserError

SIDE = 32
RECORD = 2 + 3 * SIDE * SIDE
FOLDER, PICKLED = "cifar-100-binary", "cifar-100-python"


@dataclass(frozen=True)
class Cifar100:
    """The classes of some superclasses; by default the four of the published study, 20 labelers."""

    superclasses: tuple[str, ...] = ("large carnivores", "flowers", "household electrical devices", "vehicles 1")
    """Their names, with spaces or underscores."""

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """Return the training images by their classes, and the test images of the same classes as held out.

        ``path`` is the folder or the one above. Classes are named unless ``contributor`` is None.
        """
        folder = _folder(existing(path))
        coarse, fine = (_label_names(folder / f"{kind}_label_names.txt") for kind in ("coarse", "fine"))
        wanted = [_label(name, coarse, folder) for name in self.superclasses]
        if not wanted:
            raise UserError("superclasses: an empty list; at least one name is accepted")
        records = []
        for part in ("train", "test"):
            content = _read(folder / f"{part}.bin", len(coarse), len(fine))
            rows = np.flatnonzero(np.isin(content[:, 0], wanted))
            for row, (_, label), planes in zip(rows, content[rows, :2], content[rows, 2:], strict=True):
                giver = None if contributor is None else fine[label]
                records.append(Record(f"{part}/{row:08d}", giver, partial(_image, planes), heldout=part == "test"))
        return records


def _folder(path: Path) -> Path:
    binary, pickled = ([path, path / name] for name in (FOLDER, PICKLED))
    if not any((place / "train.bin").exists() for place in binary):
        for place in pickled:
            if (place / "meta").exists():
                raise UserError(
                    f"{place}: the pickled version of CIFAR-100, and a pickle can run any code; "
                    f"the binary version ({FOLDER}) is accepted"
                )
    return folder_with(path, FOLDER, "train.bin")


def _label_names(file: Path) -> list[str]:
    return [contributor_name(name, f"{file}:{line}") for line, (name,) in words(file, 1)]


def _label(name: str, known: Sequence[str], folder: Path) -> int:
    spelled = "_".join(name.split()).lower()
    if spelled not in known:
        raise UserError(f"superclasses: {name!r} is not in {folder}; there are: {', '.join(known)}")
    return known.index(spelled)


def _read(file: Path, coarse: int, fine: int) -> NDArray[np.uint8]:
    """Return (m, 3074) uint8, one record a row."""
    if not file.is_file():
        raise UserError(f"{file}: does not exist")
    size = file.stat().st_size
    if size == 0 or size % RECORD:
        raise UserError(f"{file}: {size} bytes, which is no whole number of {RECORD}-byte records; is it truncated?")
    content = np.fromfile(file, np.uint8).reshape(-1, RECORD)
    labels = content[:, :2].max(axis=0)
    if labels[0] >= coarse or labels[1] >= fine:
        raise UserError(
            f"{file}: labels up to {labels[0]} and {labels[1]}, but names for {coarse} superclasses and {fine} classes"
        )
    return content


def _image(planes: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(planes.reshape(3, SIDE, SIDE).transpose(1, 2, 0)))
