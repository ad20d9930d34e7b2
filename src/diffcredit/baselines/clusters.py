"""The distance of training images to clusters of generated images."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from diffcredit.baselines.base import Evidence, Scoring
from diffcredit.errors import UserError
from diffcredit.features import FeaturesOption
from diffcredit.properties.cluster_entropy import cluster_means
from diffcredit.util.arrays import FloatArray


@dataclass
class ClusterDistance(Scoring):
    """Minus the mean over k of the distance ‖x − c_k‖ to the means c_k of ``clusters`` clusters of the generated
    images, so that nearer images score higher.

    x are the features of the extractor ``features``. Clusters are found by Ward's method, as in ``cluster_entropy``.
    """

    features: FeaturesOption = "layout"
    clusters: Annotated[int, Ge(2)] = 20

    name = "cluster_distance"
    title = "Distance to the clusters of generated images"
    category = "similarity"
    aggregations = ("mean", "max")

    def scores(self, evidence: Evidence) -> FloatArray:
        from scipy.spatial.distance import cdist

        generated = evidence.queries(self.name)
        if len(generated) < self.clusters:
            raise UserError(
                f"cluster_distance.clusters: {self.clusters} clusters of {len(generated)} generated images; at most "
                "as many as there are images are accepted"
            )
        see = evidence.extractors.kept
        means = cluster_means(see(self.features, generated, "the base model's images"), self.clusters)
        training = see(self.features, evidence.contributions.images, "the training images")
        return -cdist(training.vectors.astype(np.float64), means).mean(axis=1)
