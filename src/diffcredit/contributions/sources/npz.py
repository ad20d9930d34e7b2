"""NumPy arrays: ``images`` and, row by row, their contributors."""

import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from PIL import Image

from diffcredit.contributions.names import contributor_name
from diffcredit.contributions.sources.record import Record
from diffcredit.errors import UserError


def npz(path: Path, contributor: str | None) -> list[Record]:
    """One record a row of ``images``, (m, h, w), (m, h, w, 1) or (m, h, w, 3) uint8; the array named
    ``contributor`` holds m texts or integers. A row's number is its identity."""
    wanted = ["images"] if contributor is None else ["images", contributor]
    images, *rest = _read(path, wanted)
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] not in (1, 3)):
        raise UserError(
            f"{path}: images is {images.dtype} {images.shape}; uint8 (m, h, w), (m, h, w, 1) or (m, h, w, 3) "
            "is accepted"
        )
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    givers = [None] * len(images) if contributor is None else _contributors(rest[0], len(images), path, contributor)
    # a fixed width: names sort as numbers do, and more rows do not rename the earlier ones
    return [
        Record(f"{row:08d}", giver, partial(Image.fromarray, image))
        for row, (image, giver) in enumerate(zip(images, givers, strict=True))
    ]


def _read(path: Path, wanted: list[str]) -> list[NDArray[Any]]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, NpzFile):
            raise UserError(f"{path}: a single array; an .npz of named arrays is accepted")
        with loaded as arrays:
            for name in wanted:
                if name not in arrays:
                    raise UserError(f"{path}: no array {name!r}; there are: {', '.join(arrays) or 'none'}")
            return [arrays[name] for name in wanted]
    except (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path}: not a readable .npz of plain arrays: {error}") from None


def _contributors(values: NDArray[Any], m: int, path: Path, column: str) -> list[str]:
    if values.dtype.kind not in "Uiu":
        raise UserError(f"{path}: {column} is {values.dtype}; texts or integers are accepted")
    if values.shape != (m,):
        raise UserError(f"{path}: {column} has shape {values.shape}; one value for each of the {m} images is accepted")
    return [contributor_name(str(value), f"{path}: {column}[{row}]") for row, value in enumerate(values)]
