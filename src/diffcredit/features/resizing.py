"""Resizing images as the reference implementations of feature extractors do; features depend on it.

On a GPU, square images are resized by matrix products that equal Pillow's resizing to the last bit. Pillow's filters
are weights in fixed point. First each row, then each column of an image becomes a sum of pixels times multiples of
2⁻²², rounded to 8 bits. Such sums are below 2³¹, so that float64 holds them exactly in any order.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diffcredit.features.base import Images

if TYPE_CHECKING:
    from torch import Tensor

Method = Literal["bilinear", "bicubic"]

BITS = 22  # of the fractional part
SUPPORT = {"bilinear": 1.0, "bicubic": 2.0}  # how far a filter reaches, in pixels


def as_pillow(images: Images, size: int, method: Method) -> Images:
    """Resize (m, h, w, 3) → (m, size, size, 3) uint8 with Pillow's antialiasing filters, unless the size is right."""
    if images.shape[1:3] == (size, size):
        return images
    # torch's antialiased interpolation of uint8 is several times faster, but off by 2 levels and more at some sizes
    kernel = Image.Resampling[method.upper()]
    return np.stack([np.asarray(Image.fromarray(image).resize((size, size), kernel)) for image in images])


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
    matrix = torch.from_numpy(_weights(length, size, method)).to(x.device)
    return _rounded(matrix @ _rounded(x @ matrix.T))


def _rounded(sums: "Tensor") -> "Tensor":
    """Round fixed point to the nearest of 0 to 255; a half rounds up."""
    return ((sums + 2.0 ** (BITS - 1)) * 2.0**-BITS).floor().clamp(0, 255)


@lru_cache(maxsize=16)
def _weights(length: int, size: int, method: Method) -> NDArray[np.float64]:
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


def tensorflow_bilinear(x: "Tensor", size: int) -> "Tensor":
    """Resize (m, c, h, w) → (m, c, size, size), floating point, as TensorFlow 1 did for the first Inception features.

    Output pixel i lies at position p = i · h / size of the input and is (1 − p + ⌊p⌋) x[⌊p⌋] + (p − ⌊p⌋)
    x[min(⌊p⌋ + 1, h − 1)], whatever the scale: without antialiasing. The same for columns.
    """
    import torch

    for dimension in (3, 2):
        length = x.shape[dimension]
        position = torch.arange(size, dtype=torch.float32, device=x.device) * (length / size)  # TensorFlow's precision
        low = position.long()
        share = (position - low).to(x.dtype).reshape([-1 if d == dimension else 1 for d in range(x.ndim)])
        start = x.index_select(dimension, low)
        x = start + (x.index_select(dimension, (low + 1).clamp_max(length - 1)) - start) * share
    return x
