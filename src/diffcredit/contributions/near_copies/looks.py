"""Small versions of images, the views of them in which a copy may show, and their perceptual hashes."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diffcredit.errors import UserError

SIDE = 32  # pixels of a look: what a perceptual hash reads


@dataclass(frozen=True)
class View:
    """A square part of an image, of ``scale`` times its side; ``left`` and ``top`` place it, from 0 to 1."""

    scale: float
    left: float = 0.5
    top: float = 0.5


WHOLE = View(1.0)
THIRDS = (0.0, 0.5, 1.0)
VIEWS = (WHOLE, *(View(scale, left, top) for scale in (0.9, 0.8) for left in THIRDS for top in THIRDS))


def looks_of(images: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Return square ``images``, (h, h, 3) each, resized to (m, SIDE, SIDE, 3)."""
    looks = np.empty((len(images), SIDE, SIDE, 3), dtype=np.uint8)
    for row, image in enumerate(images):
        looks[row] = Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return looks


def mirrored(looks: NDArray[Any]) -> NDArray[Any]:
    """Return images (m, s, s, 3) left to right."""
    return looks[:, :, ::-1]


def part(pixels: NDArray[Any], scale: float, left: float = 0.5, top: float = 0.5) -> NDArray[np.float32]:
    """Return a part of square images (m, s, s, 3), as of a :class:`View`, enlarged to (m, s, s, 3)."""
    side = pixels.shape[1]
    down, across = (_interpolation(side, scale, place) for place in (top, left))
    rows = np.matmul(down, pixels.reshape(len(pixels), side, 3 * side).astype(np.float32))
    columns = rows.reshape(pixels.shape).transpose(0, 1, 3, 2) @ across.T
    return columns.transpose(0, 1, 3, 2)


def seen(looks: NDArray[np.uint8], view: View) -> NDArray[np.uint8]:
    """Return the ``view`` of each of ``looks``, of the same shape."""
    return looks if view == WHOLE else np.rint(part(looks, view.scale, view.left, view.top)).astype(np.uint8)


def hashes(looks: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the perceptual hash of each of ``looks``, 64 bits."""
    phash = _imagehash().phash
    bits = np.array([phash(Image.fromarray(look)).hash.ravel() for look in looks], dtype=np.bool_).reshape(-1, 64)
    return np.packbits(bits, axis=1).view(np.uint64)[:, 0]


def installed() -> bool:
    """Whether the package that hashes images is here."""
    try:
        _imagehash()
    except UserError:
        return False
    return True


def _imagehash() -> Any:
    try:
        return import_module("imagehash")
    except ImportError:
        raise UserError("near_copies needs the package ImageHash: pip install ImageHash") from None


def _interpolation(side: int, scale: float, place: float) -> NDArray[np.float32]:
    """Return the (side, side) weights that enlarge a part of a line of pixels, linearly."""
    centres = (np.arange(side) + 0.5) * scale + place * side * (1 - scale) - 0.5
    weights = 1 - np.abs(np.clip(centres, 0, side - 1)[:, None] - np.arange(side))
    return np.maximum(weights, 0).astype(np.float32)
