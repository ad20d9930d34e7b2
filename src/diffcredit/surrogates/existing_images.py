"""Surrogates of images that are there already: training images, and those of the base model. Nothing is trained."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from diffcredit.contributions import Contributions
from diffcredit.diffusion.settings import Count
from diffcredit.features.pixels import pixel_features
from diffcredit.properties import Images
from diffcredit.surrogates.base import ImageSurrogate, Material, Work
from diffcredit.util.arrays import BoolArray
from diffcredit.util.artifacts import fingerprint_arrays
from diffcredit.util.cache import artifact_name, cached_arrays

MOST_ITERATIONS = 1000


@dataclass
class RealImages(ImageSurrogate):
    """The coalition's training images, as if its model made exactly these: the control for every surrogate."""

    coalitions: Count = 1000

    def work(self, n: int, coalitions: int) -> Work:
        return Work()

    def prepare(self, material: Material) -> None:
        self._contributions = material.contributions
        self.library = material.contributions.images

    def rows(self, coalition: BoolArray) -> NDArray[np.int64]:
        return self._contributions.of(coalition)


@dataclass
class Reweighting(ImageSurrogate):
    """A resample of the base model's images x, drawn in proportion to Σ_{i∈S} p(i|x).

    p(i|x) is the probability that image x comes from contributor i, or from the house, which is one more i that is in
    every S; by a multinomial logistic regression of i on :func:`pixel_features`, fitted to the training images.
    """

    coalitions: Count = 1000

    def work(self, n: int, coalitions: int) -> Work:
        return Work()

    def prepare(self, material: Material) -> None:
        self.library = library = material.generated()
        self._contributions = material.contributions
        images = fingerprint_arrays({"images": library})
        name = artifact_name("reweighting", [material.contributions.fingerprint, images])

        def fit() -> dict[str, NDArray[np.float64]]:
            return {"log_probabilities": log_probabilities(material.contributions, library)}

        self._log_probabilities = cached_arrays(material.folder, name, fit)["log_probabilities"]

    def rows(self, coalition: BoolArray) -> NDArray[np.int64]:
        return resampled(logsumexp(self._log_probabilities[:, self._contributions.groups_of(coalition)], axis=1))


def log_probabilities(contributions: Contributions, images: Images) -> NDArray[np.float64]:
    """Return log p(i|x) of each image x and group of training images i: (m, n), or (m, n + 1) with the house."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=MOST_ITERATIONS))
    group = np.where(contributions.house, contributions.n, contributions.owner)  # columns are in this order
    classifier.fit(pixel_features(contributions.images), group)
    return classifier.predict_log_proba(pixel_features(images))


def resampled(log_weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draw m of m images in proportion to their weights by systematic resampling; always the same.

    Image x comes ⌊m·w_x⌋ or ⌈m·w_x⌉ times, where w_x is its share of the total weight.
    """
    weights = np.exp(log_weights - log_weights.max())
    count = len(weights)
    bounds = np.cumsum(weights) / weights.sum()
    return np.minimum(np.searchsorted(bounds, (np.arange(count) + 0.5) / count, side="right"), count - 1)
