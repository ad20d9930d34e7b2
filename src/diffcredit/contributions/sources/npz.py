"""NumPy arrays: ``images`` and, row by row, their contributors, captions and who is held out."""

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from PIL import Image

from diffcredit.contributions.names import contributor_name
from diffcredit.contributions.sources.files import existing
from diffcredit.contributions.sources.record import Record
from diffcredit.errors import UserError


@dataclass(frozen=True)
class Npz:
    """An ``.npz`` of named arrays."""

    caption: str | None = None
    """The array of m captions."""
    heldout: str | None = None
    """The array of m integers or booleans that are not zero where an image is held out."""

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """One record a row of ``images``, (m, h, w), (m, h, w, 1) or (m, h, w, 3) uint8; the array named
        ``contributor`` holds m texts or integers. A row's number is its identity."""
        path = existing(path)
        wanted = {"images", contributor, self.caption, self.heldout} - {None}
        arrays = _read(path, sorted(str(name) for name in wanted))
        images = arrays["images"]
        colours = images.shape[3] if images.ndim == 4 else 1
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or colours not in (1, 3):
            raise UserError(
                f"{path}: images is {images.dtype} {images.shape}; uint8 (m, h, w), (m, h, w, 1) or (m, h, w, 3) "
                "is accepted"
            )
        if images.ndim == 4 and colours == 1:
            images = images[..., 0]

        def column(name: str | None, kinds: str, accepted: str) -> list[Any]:
            return [None] * len(images) if name is None else _column(arrays, name, len(images), kinds, accepted, path)

        givers = [
            None if giver is None else contributor_name(str(giver), f"{path}: {contributor}[{row}]")
            for row, giver in enumerate(column(contributor, "Uiu", "texts or integers"))
        ]
        captions = column(self.caption, "U", "texts")
        out = column(self.heldout, "biu", "integers or booleans")
        # a fixed width: names sort as numbers do, and more rows do not rename the earlier ones
        return [
            Record(f"{row:08d}", giver, partial(Image.fromarray, image), caption, bool(kept_out))
            for row, (image, giver, caption, kept_out) in enumerate(zip(images, givers, captions, out, strict=True))
        ]


def _read(path: Path, wanted: list[str]) -> dict[str, NDArray[Any]]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, NpzFile):
            raise UserError(f"{path}: a single array; an .npz of named arrays is accepted")
        with loaded as arrays:
            for name in wanted:
                if name not in arrays:
                    raise UserError(f"{path}: no array {name!r}; there are: {', '.join(arrays) or 'none'}")
            return {name: arrays[name] for name in wanted}
    except (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path}: not a readable .npz of plain arrays: {error}") from None


def _column(arrays: Mapping[str, NDArray[Any]], name: str, m: int, kinds: str, accepted: str, path: Path) -> list[Any]:
    values = arrays[name]
    if values.dtype.kind not in kinds:
        raise UserError(f"{path}: {name} is {values.dtype}; {accepted} are accepted")
    if values.shape != (m,):
        raise UserError(f"{path}: {name} has shape {values.shape}; one value for each of the {m} images is accepted")
    return values.tolist()
