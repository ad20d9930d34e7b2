"""Images laid out in rows, as PNG."""

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diffcredit.errors import UserError

GAP = 2  # pixels between images


def image_grid(images: NDArray[np.uint8], columns: int, scale: int = 1) -> bytes:
    """Return a PNG of ``images``, uint8 (m, h, w, 3), in ``columns`` columns; otherwise like :func:`image_rows`."""
    return image_rows([images[start : start + columns] for start in range(0, max(len(images), 1), columns)], scale)


def image_rows(rows: Sequence[NDArray[np.uint8]], scale: int = 1) -> bytes:
    """Return a PNG of ``rows`` of images, each uint8 (m, h, w, 3) with its own m ≥ 1 and the same h and w.

    Each pixel becomes ``scale`` × ``scale`` pixels. Gaps and the places after a row's last image are transparent,
    so that the grid fits a light and a dark page.
    """
    for row in rows:
        if row.ndim != 4 or row.shape[-1] != 3 or row.dtype != np.uint8 or len(row) == 0:
            raise UserError(f"image grid: images are {row.dtype} {row.shape}, expected uint8 (m, h, w, 3) with m ≥ 1")
    sizes = {row.shape[1:3] for row in rows}
    if len(sizes) != 1:
        raise UserError(f"image grid: images of {len(sizes)} sizes; expected one size, (h, w), in all rows")
    height, width = (scale * side for side in sizes.pop())
    columns = max(map(len, rows))
    canvas = np.zeros((len(rows) * (height + GAP) - GAP, columns * (width + GAP) - GAP, 4), np.uint8)
    for i, row in enumerate(rows):
        for j, tile in enumerate(row.repeat(scale, axis=1).repeat(scale, axis=2)):
            top, left = i * (height + GAP), j * (width + GAP)
            canvas[top : top + height, left : left + width, :3] = tile
            canvas[top : top + height, left : left + width, 3] = 255
    file = io.BytesIO()
    Image.fromarray(canvas).save(file, "PNG", optimize=True)
    return file.getvalue()
