"""Extractors without a network, which need no download: pixels, coarse layout, and colours."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from diffcredit.errors import UserError
from diffcredit.features.base import Extractor, Features, Images
from diffcredit.features.resizing import as_pillow

GRID = 4  # layout cells a side
ORIENTATIONS = 4


@dataclass
class Pixels(Extractor):
    """All pixels of an image, on the scale 0 to 1; images of another size are first resized to ``size`` pixels a side
    (antialiased bilinear), so that large ones cost no more."""

    size: Annotated[int, Ge(1), Le(1024)] = 32

    batch_size = 1024

    @property
    def dimensions(self) -> int:
        return self.size * self.size * 3

    def identity(self) -> dict[str, Any]:
        return {"weights": "", "resize": f"{self.size} px, bilinear, antialiased"}

    def extract(self, images: Images) -> Features:
        small = as_pillow(images, self.size, "bilinear")
        return Features(small.reshape(len(images), -1).astype(np.float32) / np.float32(255))


@dataclass
class Layout(Extractor):
    """Mean colours and edges in the cells of a 4 × 4 grid, 112 numbers."""

    batch_size = 1024
    dimensions = GRID * GRID * (3 + ORIENTATIONS)

    def identity(self) -> dict[str, Any]:
        return {"weights": "", "resize": "none"}

    def extract(self, images: Images) -> Features:
        return Features(pixel_features(images).astype(np.float32))


def pixel_features(images: Images) -> NDArray[np.float64]:
    """(m, h, w, 3) uint8 → (m, 4·4·3 + 4·4·4): mean colour of each cell of a 4 × 4 grid, and the strength of
    edges in four orientations in each cell, both on the scale 0 to 1. h and w must be multiples of 4."""
    if images.shape[1] % GRID or images.shape[2] % GRID:
        found = f"images of {images.shape[1]} × {images.shape[2]} px do not divide into {GRID} × {GRID} cells"
        raise UserError(f"contributions.resolution: {found}; accepted: multiples of {GRID}")
    x = images.astype(np.float64) / 255
    layout = _cells(x)
    grey = x.mean(axis=-1)
    vertical, horizontal = np.gradient(grey, axis=(1, 2))
    strength = np.hypot(vertical, horizontal)
    # an edge has no direction, so angles count modulo π
    sector = np.floor((np.arctan2(vertical, horizontal) % np.pi) / np.pi * ORIENTATIONS).astype(int) % ORIENTATIONS
    edges = _cells(strength[..., None] * (sector[..., None] == np.arange(ORIENTATIONS)))
    return np.concatenate([layout, edges], axis=1)


def _cells(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over a GRID × GRID partition: (m, h, w, c) → (m, GRID·GRID·c)."""
    m, h, w, c = x.shape
    return x.reshape(m, GRID, h // GRID, GRID, w // GRID, c).mean(axis=(2, 4)).reshape(m, -1)


@dataclass
class Colours(Extractor):
    """The shares of an image's pixels in ``bins`` × ``bins`` × ``bins`` cells of the RGB cube, in the order of red,
    green and blue; they sum to 1."""

    bins: Annotated[int, Ge(2), Le(16)] = 4

    batch_size = 1024

    @property
    def dimensions(self) -> int:
        return self.bins**3

    def identity(self) -> dict[str, Any]:
        return {"weights": "", "resize": "none", "bins": self.bins}

    def extract(self, images: Images) -> Features:
        levels = images.reshape(len(images), -1, 3).astype(np.int64) * self.bins // 256
        cells = (levels[..., 0] * self.bins + levels[..., 1]) * self.bins + levels[..., 2]
        counts = np.stack([np.bincount(own, minlength=self.dimensions) for own in cells])
        return Features((counts / cells.shape[1]).astype(np.float32))
