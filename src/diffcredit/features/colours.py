"""A colour histogram: the colours of an image, wherever they are."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from diffcredit.features.base import Extractor, Features, Images


@dataclass
class Colours(Extractor):
    """The shares of an image's pixels in ``bins`` × ``bins`` × ``bins`` cells of the RGB cube, in the order of red,
    green and blue; they sum to 1."""

    bins: Annotated[int, Ge(2), Le(16)] = 4

    label = "colours"
    batch_size = 1024

    @property
    def dimensions(self) -> int:
        return self.bins**3

    def identity(self) -> dict[str, Any]:
        return {"weights": "", "resize": "none", "bins": self.bins}

    def extract(self, images: Images) -> Features:
        return Features(colour_shares(images, self.bins).astype(np.float32))


def colour_shares(images: Images, bins: int) -> NDArray[np.float64]:
    """(m, h, w, 3) uint8 → (m, bins³): the joint histogram of the three channels, 0..255 cut into equal parts."""
    levels = images.reshape(len(images), -1, 3).astype(np.int64) * bins // 256
    cells = (levels[..., 0] * bins + levels[..., 1]) * bins + levels[..., 2]
    numbered = cells + bins**3 * np.arange(len(images))[:, None]  # each image has cells of its own
    counts = np.bincount(numbered.ravel(), minlength=bins**3 * len(images)).reshape(len(images), -1)
    return counts / cells.shape[1]
