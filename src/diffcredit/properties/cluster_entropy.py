"""How evenly a model's images spread over the kinds of image that the base model makes."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.properties.bootstrap import resamples
from diffcredit.properties.features import pixel_features
from diffcredit.properties.protocol import Context, Images, State


@dataclass
class ClusterEntropy:
    """Diversity: the entropy, in nats, of the images' shares in ``clusters`` reference clusters.

    The clusters are Ward's, of the base model's own images in a feature space of layout, edges and colours;
    a new image belongs to the cluster with the nearest mean. At most log(clusters); biased downwards when
    images are few.
    """

    clusters: Annotated[int, Ge(2)] = 20

    name = "cluster_entropy"
    title = "Diversity"
    higher_is_better = True
    unit = "nats"
    explanation = (
        "How evenly the generated images spread over kinds of image: the entropy over clusters of the base "
        "model's own images. 0 means all of one kind."
    )

    def check(self, contributions: Contributions, images: int) -> None:
        if images < self.clusters:
            raise UserError(
                f"cluster_entropy.clusters: {self.clusters} clusters of {images} generated images; "
                f"accepted: at most sampling.images"
            )

    def fit(self, context: Context) -> State:
        from sklearn.cluster import AgglomerativeClustering

        self.check(context.contributions, len(context.generated))
        features = pixel_features(context.generated)
        labels = AgglomerativeClustering(self.clusters, linkage="ward").fit_predict(features)
        return {"centres": np.stack([features[labels == k].mean(axis=0) for k in range(self.clusters)])}

    def restore(self, state: State) -> None:
        self.centres: NDArray[np.float64] = state["centres"]

    def measure(self, images: Images) -> float:
        counts = np.bincount(self.assign(images), minlength=self.clusters)
        shares = counts[counts > 0] / len(images)
        return float(-(shares * np.log(shares)).sum())

    def standard_error(self, images: Images) -> float:
        """By the bootstrap, from the images' clusters."""
        drawn = self.assign(images)[resamples(len(images))]
        numbered = drawn + self.clusters * np.arange(len(drawn))[:, None]  # each resample has clusters of its own
        counts = np.bincount(numbered.ravel(), minlength=self.clusters * len(drawn)).reshape(len(drawn), -1)
        shares = counts / len(images)
        entropies = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)
        return float(entropies.std())

    def assign(self, images: Images) -> NDArray[np.int64]:
        """The nearest cluster of each image, (m,)."""
        from scipy.spatial.distance import cdist

        return cdist(pixel_features(images), self.centres).argmin(axis=1)
