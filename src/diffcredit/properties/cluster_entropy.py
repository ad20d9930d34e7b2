"""Diversity: how evenly images spread over clusters of the base model's images."""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.features import Features, FeaturesOption
from diffcredit.properties.base import Context, State
from diffcredit.properties.kinds import FeatureProperty, resampled_counts


@dataclass
class ClusterEntropy(FeatureProperty):
    """The entropy −Σ p_k log p_k, in nats, of the images' shares p_k in ``clusters`` reference clusters.

    The clusters are Ward's, of the base model's images; a new image belongs to the cluster with the nearest mean.
    """

    clusters: Annotated[int, Ge(2)] = 20
    features: FeaturesOption = "layout"

    name = "cluster_entropy"
    heading = "Diversity"
    unit = "nats"
    explanation = (
        "How evenly the generated images spread over kinds of image: the entropy over clusters of the base "
        "model's own images. 0 means all of one kind."
    )

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, math.log(self.clusters)

    @property
    def bias(self) -> str:
        return (
            f"Too low by about {(self.clusters - 1) / 2:g} nats divided by the number of images (Miller–Madow); only "
            "values of equally many images compare."
        )

    def check(self, contributions: Contributions, images: int) -> None:
        if images < self.clusters:
            found = f"{self.clusters} clusters of {images} generated images"
            raise UserError(f"cluster_entropy.clusters: {found}; accepted: at most sampling.images")

    def fit(self, context: Context) -> State:
        self.check(context.contributions, len(context.generated))
        seen = context.extractors.kept(self.features, context.generated, "the base model's images")
        return {"centres": cluster_means(seen, self.clusters)}

    def restore(self, state: State) -> None:
        self.centres: NDArray[np.float64] = state["centres"]

    def measure_features(self, features: Features) -> float:
        counts = np.bincount(self.assign(features), minlength=self.clusters)
        shares = counts[counts > 0] / len(features)
        return float(-(shares * np.log(shares)).sum())

    def standard_error(self, features: Features) -> float:
        """Estimate it by the bootstrap over the images' clusters."""
        shares = resampled_counts(self.assign(features), self.clusters) / len(features)
        entropies = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)
        return float(entropies.std())

    def assign(self, features: Features) -> NDArray[np.int64]:
        """Return the nearest cluster of each image, (m,)."""
        from scipy.spatial.distance import cdist

        return cdist(features.vectors.astype(np.float64), self.centres).argmin(axis=1)


def cluster_means(features: Features, clusters: int) -> NDArray[np.float64]:
    """Return the means (clusters, d) of Ward's clusters of at least as many images."""
    from sklearn.cluster import AgglomerativeClustering

    vectors = features.vectors.astype(np.float64)
    labels = AgglomerativeClustering(clusters, linkage="ward").fit_predict(vectors)
    return np.stack([vectors[labels == k].mean(axis=0) for k in range(clusters)])
