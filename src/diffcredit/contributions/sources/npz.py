"""NumPy arrays: ``images`` and, row by row, their contributors, captions and whether they are held out."""

import math
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diffcredit.contributions.names import contributor_name
from diffcredit.contributions.sources import Record
from diffcredit.contributions.sources.files import existing
from diffcredit.contributions.sources.tables import listed, reason_of
from diffcredit.errors import UserError

MOST_BYTES = 2**35  # of all arrays that are read, unpacked
FREE_BYTES, MOST_TIMES = 2**30, 100
"""A file of any size may unpack to ``FREE_BYTES``, beyond that to ``MOST_TIMES`` its size: no images pack better."""


@dataclass(frozen=True)
class Npz:
    """An ``.npz`` of named arrays."""

    caption: str | None = None
    """The array of m captions: texts, or integers that name classes."""
    heldout: str | None = None
    """The array of m integers or booleans, not zero where an image is held out."""

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """Return one record for each row of ``images``, uint8 (m, h, w), (m, h, w, 1) or (m, h, w, 3).

        Its number is its identity. The array named ``contributor`` has m texts or integers.
        """
        path = existing(path)
        wanted = {"images", contributor, self.caption, self.heldout} - {None}
        arrays = _read(path, sorted(str(name) for name in wanted))
        images = arrays["images"]
        colours = images.shape[3] if images.ndim == 4 else 1
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or colours not in (1, 3) or 0 in images.shape[1:]:
            accepted = "uint8 (m, h, w), (m, h, w, 1) or (m, h, w, 3)"
            raise UserError(f"{path}: images is {images.dtype} {images.shape}; {accepted} is accepted")
        if images.ndim == 4 and colours == 1:
            images = images[..., 0]

        def column(name: str | None, kinds: str, accepted: str) -> list[Any]:
            values = np.full(len(images), None) if name is None else arrays[name]
            if name is not None and values.dtype.kind not in kinds:
                raise UserError(f"{path}: {name} is {values.dtype}; {accepted} are accepted")
            if values.shape != (len(images),):
                expected = f"one value for each of the {len(images)} images"
                raise UserError(f"{path}: {name} has shape {values.shape}; {expected} is accepted")
            return values.tolist()

        givers = [
            None if giver is None else contributor_name(str(giver), f"{path}: {contributor}[{row}]")
            for row, giver in enumerate(column(contributor, "Uiu", "texts or integers"))
        ]
        captions = [None if text is None else str(text) for text in column(self.caption, "Uiu", "texts or integers")]
        out = column(self.heldout, "biu", "integers or booleans")
        # of fixed width: names sort like numbers, and more rows do not rename earlier ones
        return [
            Record(f"{row:08d}", giver, partial(Image.fromarray, image), caption, bool(kept_out))
            for row, (image, giver, caption, kept_out) in enumerate(zip(images, givers, captions, out, strict=True))
        ]


def _read(path: Path, wanted: list[str]) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise UserError(f"{path}: no .npz; an .npz of named arrays is accepted")
        with np.load(path, allow_pickle=False) as arrays:
            for name in wanted:
                if name not in arrays:
                    raise UserError(f"{path}: no array {name!r}; there are: {listed(arrays)}")
            _check_size(path, wanted)
            return {name: arrays[name] for name in wanted}
    except UserError:
        raise
    except Exception as error:  # on hostile files zipfile and numpy raise anything: SyntaxError, NotImplementedError…
        raise UserError(f"{path}: not a readable .npz of plain arrays: {reason_of(error)}") from None


def _check_size(path: Path, wanted: list[str]) -> None:
    """Refuse arrays that would fill the memory, by the sizes in the archive and in the arrays' headers."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        members = [archive.getinfo(name if name in names else f"{name}.npy") for name in wanted]
        unpacked, packed = sum(member.file_size for member in members), path.stat().st_size
        if unpacked > MOST_BYTES or unpacked > max(FREE_BYTES, MOST_TIMES * packed):
            raise UserError(
                f"{path}: {packed:,} bytes that unpack to {unpacked:,}; at most {MOST_BYTES:,} are accepted, and "
                f"over {FREE_BYTES:,} at most {MOST_TIMES} times the file's size"
            )
        for member in members:
            with archive.open(member) as file:
                first = np.lib.format.read_magic(file) == (1, 0)
                read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
            if (stated := math.prod(shape) * dtype.itemsize) > member.file_size:
                raise UserError(f"{path}: {member.filename} states {stated:,} bytes but has {member.file_size:,}")
