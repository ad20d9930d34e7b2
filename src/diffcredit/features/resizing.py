"""Resizing images as the reference implementations of feature extractors do; features depend on it."""

from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image

from diffcredit.features.base import Images

if TYPE_CHECKING:
    from torch import Tensor

Method = Literal["bilinear", "bicubic"]

_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def as_pillow(images: Images, size: int, method: Method) -> Images:
    """Resize (m, h, w, 3) → (m, size, size, 3) uint8 with Pillow's antialiasing filters, unless the size is right."""
    if images.shape[1:3] == (size, size):
        return images
    # torch's antialiased interpolation of uint8 is several times faster, but off by 2 levels and more at some sizes
    resized = [np.asarray(Image.fromarray(image).resize((size, size), _FILTERS[method])) for image in images]
    return np.stack(resized)


def tensorflow_bilinear(x: "Tensor", size: int) -> "Tensor":
    """Resize (m, c, h, w) → (m, c, size, size), floating point, as TensorFlow 1 did for the first Inception features.

    Output pixel i lies at position p = i · h / size of the input, so that the grids share their first corner and not
    their centres, and is (1 − p + ⌊p⌋) x[⌊p⌋] + (p − ⌊p⌋) x[min(⌊p⌋ + 1, h − 1)], whatever the scale: without
    antialiasing. The same for columns.
    """
    return _interpolated(_interpolated(x, 3, size), 2, size)


def _interpolated(x: "Tensor", dimension: int, size: int) -> "Tensor":
    """Resize ``x`` along one dimension."""
    import torch

    length = x.shape[dimension]
    position = torch.arange(size, dtype=torch.float32, device=x.device) * (length / size)  # TensorFlow's precision
    low = position.long()
    share = (position - low).to(x.dtype).reshape([-1 if d == dimension else 1 for d in range(x.ndim)])
    start = x.index_select(dimension, low)
    return start + (x.index_select(dimension, (low + 1).clamp_max(length - 1)) - start) * share
