"""The similarity of training images to generated ones: of their pixels, of their features, to clusters of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from diffcredit.baselines.base import Evidence, Scoring
from diffcredit.errors import UserError
from diffcredit.features import FeaturesOption
from diffcredit.features.base import unit_rows
from diffcredit.properties.classes import cluster_means
from diffcredit.util.arrays import FloatArray
from diffcredit.util.progress import Progress, silent

BLOCK_NUMBERS = 2**24  # floats in memory at a time: 128 MiB


@dataclass
class PixelSimilarity(Scoring):
    """The cosine between raw pixels on the scale 0 to 255, averaged over the generated images."""

    name = "pixel_similarity"
    title = "Pixel similarity"
    category = "similarity"
    aggregations = ("mean", "max")

    def check(self, evidence: Evidence) -> None:
        evidence.comparable_queries(self.name)

    def scores(self, evidence: Evidence) -> FloatArray:
        return mean_cosines(evidence.contributions.images, evidence.comparable_queries(self.name), evidence.progress)


@dataclass
class FeatureSimilarity(Scoring):
    """The cosine between features, averaged over the generated images; known as CLIP similarity with ``clip``."""

    features: FeaturesOption = "efficientnet_lite0"

    name = "feature_similarity"
    title = "Feature similarity"
    category = "similarity"
    aggregations = ("mean", "max")

    def check(self, evidence: Evidence) -> None:
        evidence.queries(self.name)
        evidence.extractors.get(self.features)

    def scores(self, evidence: Evidence) -> FloatArray:
        extract = evidence.extractors.kept
        generated = extract(self.features, evidence.queries(self.name), "the base model's images")
        training = extract(self.features, evidence.contributions.images, "the training images")
        return mean_cosines(training.vectors, generated.vectors)


@dataclass
class ClusterDistance(Scoring):
    """Minus the mean distance ‖x − c_k‖ to the means c_k of ``clusters`` clusters of the generated images.

    x are the features of the extractor ``features``. Clusters are found by Ward's method, as in ``cluster_entropy``.
    """

    features: FeaturesOption = "layout"
    clusters: Annotated[int, Ge(2)] = 20

    name = "cluster_distance"
    title = "Distance to the clusters of generated images"
    category = "similarity"
    aggregations = ("mean", "max")

    def check(self, evidence: Evidence) -> None:
        generated = evidence.queries(self.name)
        if len(generated) < self.clusters:
            raise UserError(
                f"cluster_distance.clusters: {self.clusters} clusters of {len(generated)} generated images; at most "
                "as many as there are images are accepted"
            )
        evidence.extractors.get(self.features)

    def scores(self, evidence: Evidence) -> FloatArray:
        from scipy.spatial.distance import cdist

        self.check(evidence)
        generated = evidence.generated
        see = evidence.extractors.kept
        means = cluster_means(see(self.features, generated, "the base model's images"), self.clusters)
        training = see(self.features, evidence.contributions.images, "the training images")
        return -cdist(training.vectors.astype(np.float64), means).mean(axis=1)


def mean_cosines(training: NDArray[Any], generated: NDArray[Any], progress: Progress = silent) -> FloatArray:
    """Return (m,): each training vector's mean cosine with the generated ones; (m, …) and (g, …) are flattened.

    For unit vectors u_j of training and v_k of generated images, (1/g) Σ_k u_j·v_k = u_j·v̄: no m × g table is needed.
    The cosine with a zero vector, such as a black image, is 0.
    """
    total = len(generated) + len(training)

    def units(rows: NDArray[Any], before: int) -> Iterator[FloatArray]:
        """Yield the rows scaled to length 1, a block at a time."""
        size = max(1, BLOCK_NUMBERS // rows[0].size)
        for start in range(0, len(rows), size):
            block = rows[start : start + size]
            yield unit_rows(block.reshape(len(block), -1))
            progress("similarity of images", before + start + len(block), total)

    mean = np.sum([block.sum(axis=0) for block in units(generated, 0)], axis=0) / len(generated)
    return np.concatenate([block @ mean for block in units(training, len(generated))])
