"""Colourfulness, the measure of Hasler and Süsstrunk (2003)."""

from dataclasses import dataclass
from math import inf
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from diffcredit.features import Images
from diffcredit.properties.kinds import PercentileProperty

BLOCK = 2**18  # pixels at once: they fit into a processor's cache, which takes a third of the time


@dataclass
class Colourfulness(PercentileProperty):
    """The mean colourfulness of the generated images, or a ``percentile`` (0 to 100) of it."""

    percentile: Annotated[float, Ge(0), Le(100)] | None = None

    name = "colourfulness"
    title = "Colourfulness"
    unit = "Hasler–Süsstrunk M3"
    differences = ("pictures would be {} less colourful", "pictures would be {} more colourful")
    range = (0.0, inf)
    explanation = (
        "How vivid the generated images are: 0 is grey, 15 slightly, 45 quite, 80 and more extremely colourful."
    )

    def of_each(self, images: Images) -> NDArray[np.float64]:
        return colourfulness(images)

    def measure(self, images: Images) -> float:
        return self._summary(images)


def colourfulness(images: Images) -> NDArray[np.float64]:
    """Return M3 of each image: (m, h, w, 3) uint8 → (m,).

    With rg = R − G and yb = (R + G)/2 − B over an image's pixels, on the scale 0 to 255:
    M3 = √(σ_rg² + σ_yb²) + 0.3 √(μ_rg² + μ_yb²).
    """
    some = max(BLOCK // (images.shape[1] * images.shape[2]), 1)
    return np.concatenate([_of_some(images[start : start + some]) for start in range(0, len(images), some)])


def _of_some(images: Images) -> NDArray[np.float64]:
    red, green, blue = np.moveaxis(images.astype(np.float64), -1, 0)
    opponents = np.stack([red - green, (red + green) / 2 - blue]).reshape(2, len(images), -1)
    spread = np.sqrt(opponents.var(axis=-1).sum(axis=0))
    centre = np.sqrt(np.square(opponents.mean(axis=-1)).sum(axis=0))
    return spread + 0.3 * centre
