"""How much training images look like generated ones: by their pixels, or as a network sees them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from diffcredit.baselines.protocol import Category, Evidence, How
from diffcredit.baselines.queries import comparable_queries
from diffcredit.features import FeaturesOption
from diffcredit.properties.directions import unit_rows
from diffcredit.util.arrays import FloatArray
from diffcredit.util.progress import Progress, silent

BLOCK_NUMBERS = 2**24  # numbers held as floats at a time: 128 MiB


@dataclass
class PixelSimilarity:
    """The cosine between raw pixels on the scale 0 to 255, the mean over the generated images."""

    name: ClassVar[str] = "pixel_similarity"
    title: ClassVar[str] = "Pixel similarity"
    category: ClassVar[Category] = "similarity"
    aggregations: ClassVar[tuple[How, ...]] = ("mean", "max")

    def scores(self, evidence: Evidence) -> FloatArray:
        return mean_cosines(evidence.contributions.images, comparable_queries(evidence, self.name), evidence.progress)


@dataclass
class FeatureSimilarity:
    """The cosine between what the extractor ``features`` sees, the mean over the generated images; with ``clip`` it is
    known as CLIP similarity."""

    features: FeaturesOption = "efficientnet_lite0"

    name: ClassVar[str] = "feature_similarity"
    title: ClassVar[str] = "Feature similarity"
    category: ClassVar[Category] = "similarity"
    aggregations: ClassVar[tuple[How, ...]] = ("mean", "max")

    def scores(self, evidence: Evidence) -> FloatArray:
        see = evidence.extractors.kept
        generated = see(self.features, evidence.queries(self.name), "the base model's images")
        training = see(self.features, evidence.contributions.images, "the training images")
        return mean_cosines(training.vectors, generated.vectors)


def mean_cosines(training: NDArray[Any], generated: NDArray[Any], progress: Progress = silent) -> FloatArray:
    """(m,): the mean over the generated (g, …) of their cosines with each of the training (m, …), as vectors.

    For unit vectors u_j of training and v_k of generated images (1/g) Σ_k u_j·v_k = u_j·v̄, so that no m × g table is
    needed. What has no direction, such as a black image, has the cosine 0 with everything.
    """
    total = len(generated) + len(training)

    def units(rows: NDArray[Any], before: int) -> Iterator[FloatArray]:
        """The rows of length 1, a block at a time."""
        size = max(1, BLOCK_NUMBERS // rows[0].size)
        for start in range(0, len(rows), size):
            block = rows[start : start + size]
            yield unit_rows(block.reshape(len(block), -1))
            progress("similarity of images", before + start + len(block), total)

    mean = np.sum([block.sum(axis=0) for block in units(generated, 0)], axis=0) / len(generated)
    return np.concatenate([block @ mean for block in units(training, len(generated))])
