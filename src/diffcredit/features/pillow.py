"""Pillow's resizing of square 8-bit images as products of matrices, for a GPU: the same numbers, to the last bit.

Pillow's filters are weights in fixed point: first each line of an image, then each column becomes a sum of pixels times
whole numbers of 2⁻²², rounded to 8 bits. Such sums are below 2³¹, so that float64 holds them without rounding, in
whatever order they are added up.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from diffcredit.features.base import Images
from diffcredit.features.resizing import Method, as_pillow

if TYPE_CHECKING:
    from torch import Tensor

BITS = 22  # behind the point
SUPPORT = {"bilinear": 1.0, "bicubic": 2.0}  # how far a filter reaches, in pixels


def resized(images: Images, size: int, method: Method, device: str) -> "Tensor":
    """(m, h, w, 3) uint8 → (m, 3, size, size) float32 of whole numbers 0 to 255, on ``device``; what has the size
    already is left as it is."""
    import torch

    height, width = images.shape[1:3]
    if (
        not device.startswith("cuda") or height != width
    ):  # which sides of others come first, Pillow's versions differ in
        return torch.tensor(as_pillow(images, size, method), device=device).permute(0, 3, 1, 2).float()
    return by_matrices(torch.tensor(images, device=device).permute(0, 3, 1, 2), size, method).float()


def by_matrices(x: "Tensor", size: int, method: Method) -> "Tensor":
    """(m, c, h, h) of whole numbers 0 to 255 → (m, c, size, size) of such, float64."""
    import torch

    x, length = x.double(), x.shape[-1]
    if length == size:
        return x
    matrix = torch.from_numpy(weights(length, size, method)).to(x.device)
    return _rounded(matrix @ _rounded(x @ matrix.T))


def _rounded(sums: "Tensor") -> "Tensor":
    """From fixed point to the nearest of 0 to 255; a half goes up."""
    return ((sums + 2.0 ** (BITS - 1)) * 2.0**-BITS).floor().clamp(0, 255)


@lru_cache(maxsize=16)
def weights(length: int, size: int, method: Method) -> NDArray[np.float64]:
    """(size, length): of each pixel of a resized line, the whole numbers that the pixels are multiplied with."""
    scale = length / size
    wide = max(scale, 1.0)  # what shrinks is smoothed over more pixels
    reach = SUPPORT[method] * wide
    found = np.zeros((size, length))
    for place in range(size):
        centre = (place + 0.5) * scale
        first, last = max(0, int(centre - reach + 0.5)), min(length, int(centre + reach + 0.5))
        seen = _filter((np.arange(first, last, dtype=np.float64) - centre + 0.5) * (1 / wide), method)
        # added up one by one, as Pillow does: the last bit of a sum depends on it
        found[place, first:last] = seen / sum(seen.tolist())
    return np.trunc(found * 2**BITS + np.where(found < 0, -0.5, 0.5))


def _filter(x: NDArray[np.float64], method: Method) -> NDArray[np.float64]:
    """Of distances x from the centre: a triangle, or Keys' cubic with a = −½."""
    x = np.abs(x)
    if method == "bilinear":
        return np.maximum(1 - x, 0)
    a = -0.5
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))
