"""Pillow's resizing of square 8-bit images as matrix products on a GPU, equal to Pillow's to the last bit.

Pillow's filters are weights in fixed point. First each row, then each column of an image becomes a sum of pixels times
multiples of 2⁻²², rounded to 8 bits. Such sums are below 2³¹, so that float64 holds them exactly in any order.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from diffcredit.features.base import Images
from diffcredit.features.resizing import Method, as_pillow

if TYPE_CHECKING:
    from torch import Tensor

BITS = 22  # of the fractional part
SUPPORT = {"bilinear": 1.0, "bicubic": 2.0}  # how far a filter reaches, in pixels


def resized(images: Images, size: int, method: Method, device: str) -> "Tensor":
    """Resize (m, h, w, 3) uint8 → (m, 3, size, size) float32 of integers 0 to 255, on ``device``."""
    import torch

    height, width = images.shape[1:3]
    # Pillow's versions differ in whether rows or columns of other than square images come first
    if not device.startswith("cuda") or height != width:
        return torch.tensor(as_pillow(images, size, method), device=device).permute(0, 3, 1, 2).float()
    return by_matrices(torch.tensor(images, device=device).permute(0, 3, 1, 2), size, method).float()


def by_matrices(x: "Tensor", size: int, method: Method) -> "Tensor":
    """Resize (m, c, h, h) → (m, c, size, size) float64, both of integers 0 to 255."""
    import torch

    x, length = x.double(), x.shape[-1]
    if length == size:
        return x
    matrix = torch.from_numpy(weights(length, size, method)).to(x.device)
    return _rounded(matrix @ _rounded(x @ matrix.T))


def _rounded(sums: "Tensor") -> "Tensor":
    """Round fixed point to the nearest of 0 to 255; a half rounds up."""
    return ((sums + 2.0 ** (BITS - 1)) * 2.0**-BITS).floor().clamp(0, 255)


@lru_cache(maxsize=16)
def weights(length: int, size: int, method: Method) -> NDArray[np.float64]:
    """Return the integer weights (size, length) of a line's pixels in each pixel of the resized line."""
    scale = length / size
    wide = max(scale, 1.0)  # shrinking smooths over more pixels
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
    """Return the filter at distances x from its centre: a triangle, or Keys' cubic with a = −½."""
    x = np.abs(x)
    if method == "bilinear":
        return np.maximum(1 - x, 0)
    a = -0.5
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))
