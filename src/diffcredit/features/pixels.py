"""The pixels themselves, as a vector."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le

from diffcredit.features.base import Extractor, Features, Images
from diffcredit.features.resizing import as_pillow


@dataclass
class Pixels(Extractor):
    """All pixels of an image, on the scale 0 to 1; images of another size are first resized to ``size`` pixels a side
    (antialiased bilinear), so that large ones cost no more."""

    size: Annotated[int, Ge(1), Le(1024)] = 32

    label = "pixels"
    batch_size = 1024

    @property
    def dimensions(self) -> int:
        return self.size * self.size * 3

    def identity(self) -> dict[str, Any]:
        return {"weights": "", "resize": f"{self.size} px, bilinear, antialiased"}

    def extract(self, images: Images) -> Features:
        small = as_pillow(images, self.size, "bilinear")
        return Features(small.reshape(len(images), -1).astype(np.float32) / np.float32(255))
