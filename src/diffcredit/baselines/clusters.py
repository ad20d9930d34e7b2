"""How near training images are to the kinds of image that the base model makes."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from diffcredit.baselines.protocol import Category, Evidence, How
from diffcredit.errors import UserError
from diffcredit.features import FeaturesOption
from diffcredit.properties.cluster_entropy import cluster_means
from diffcredit.util.arrays import FloatArray


@dataclass
class ClusterDistance:
    """Minus the mean over k of the distance ‖x − c_k‖ to the means c_k of ``clusters`` clusters of the generated
    images, so that the nearer scores the higher.

    x is what the extractor ``features`` sees. The clusters are Ward's, those of the property ``cluster_entropy``.
    """

    features: FeaturesOption = "layout"
    clusters: Annotated[int, Ge(2)] = 20

    name: ClassVar[str] = "cluster_distance"
    title: ClassVar[str] = "Distance to the clusters of generated images"
    category: ClassVar[Category] = "similarity"
    aggregations: ClassVar[tuple[How, ...]] = ("mean", "max")

    def scores(self, evidence: Evidence) -> FloatArray:
        from scipy.spatial.distance import cdist

        generated = evidence.queries(self.name)
        if len(generated) < self.clusters:
            raise UserError(
                f"cluster_distance.clusters: {self.clusters} clusters of {len(generated)} generated images; accepted: "
                "at most as many as there are"
            )
        see = evidence.extractors.kept
        means = cluster_means(see(self.features, generated, "the base model's images"), self.clusters)
        training = see(self.features, evidence.contributions.images, "the training images")
        return -cdist(training.vectors.astype(np.float64), means).mean(axis=1)
