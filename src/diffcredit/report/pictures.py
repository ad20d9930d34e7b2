"""Images as PNG and PNG as text."""

import base64
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from diffcredit.errors import UserError

GAP = 2  # pixels between the images of a grid


def image_grid(images: NDArray[np.uint8], columns: int, scale: int = 1) -> bytes:
    """A PNG of ``images``, uint8 (m, h, w, 3), row by row in ``columns`` columns.

    Each pixel becomes ``scale`` × ``scale`` pixels. Gaps and the places after the last image are transparent,
    so that the grid sits on a light and on a dark page.
    """
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8 or len(images) == 0:
        raise UserError(f"image grid: images are {images.dtype} {images.shape}, expected uint8 (m, h, w, 3) with m ≥ 1")
    if columns < 1 or scale < 1:
        raise UserError(f"image grid: columns={columns}, scale={scale}; both must be at least 1")
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    tiles = images.repeat(scale, axis=1).repeat(scale, axis=2)
    height, width = tiles.shape[1:3]
    canvas = np.zeros((rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, 4), np.uint8)
    for i, tile in enumerate(tiles):
        top, left = i // columns * (height + GAP), i % columns * (width + GAP)
        canvas[top : top + height, left : left + width, :3] = tile
        canvas[top : top + height, left : left + width, 3] = 255
    file = io.BytesIO()
    Image.fromarray(canvas).save(file, "PNG", optimize=True)
    return file.getvalue()


def png_size(png: bytes, name: str) -> tuple[int, int]:
    """Width and height in pixels; ``name`` is what the error calls the picture."""
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            return image.size
    except UnidentifiedImageError:
        raise UserError(f"{name}: not a PNG") from None


def data_uri(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
