"""The Inception Score: how clearly images belong to a class, and how many classes there are."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from diffcredit.features import Features, FeaturesOption
from diffcredit.features.extractors import label_of
from diffcredit.properties.bootstrap import jackknife_error
from diffcredit.properties.kinds import FeatureProperty

BLOCK = 128  # images whose class probabilities are held at once, in a processor's cache


@dataclass
class InceptionScore(FeatureProperty):
    """exp(E KL(p(y|x) ‖ p(y))) of Salimans et al. (2016).

    p(y|x) are a classifier's probabilities for an image, p(y) their mean over all images. With ``splits`` > 1 it is the
    mean score of that many parts of the images (image j in part j mod splits); many published numbers use ten. Each
    part has fewer images, so that the score is lower.
    """

    features: FeaturesOption = "efficientnet_lite0"
    splits: Annotated[int, Ge(1)] = 1

    name = "inception_score"
    heading = "Inception Score"
    classifier = True
    unit = "classes"
    explanation = (
        "How clearly the generated images show something, and how many different things: 1 when all look alike to a "
        "classifier, at most the number of its classes."
    )
    bias = (
        "Too low when images are few for the classes they show, and the lower the fewer they are: compare equal "
        "numbers of images only."
    )
    range = (1.0, float("inf"))

    @property
    def title_of_each(self) -> str:
        return f"Certainty of an image's class, −entropy ({label_of(self.features)})"

    def least(self, dimensions: int) -> int:
        return self.splits

    def measure_features(self, features: Features) -> float:
        return float(np.mean([inception_score(part) for part in self._parts(features)]))

    def of_each(self, features: Features) -> NDArray[np.float64]:
        """Return −H(p(y|x)) in nats for each image, (m,): how sure the classifier is, at most 0."""
        return _sums(features)[1]

    def standard_error(self, features: Features) -> float:
        """Estimate it by the jackknife, √Σ_s SE_s² / splits.

        In simulations with few images for the classes (200 images, 1,000 classes) it is 1.1 to 1.4 times the spread
        over fresh sets. The bootstrap would be a third too small: in its resamples a class that is seen once is seen
        never or twice.
        """
        errors = [jackknife_error(scores_without_each(part)) for part in self._parts(features)]
        return float(np.sqrt(np.square(errors).sum()) / self.splits)

    def _parts(self, features: Features) -> list[Features]:
        if self.splits == 1:
            return [features]
        return [features.select(slice(start, None, self.splits)) for start in range(self.splits)]


def inception_score(features: Features) -> float:
    """Return exp(H(p̄) − mean_i H(p_i)), the exponential of the mean KL(p_i ‖ p̄); H is the entropy in nats."""
    total, certainties = _sums(features)
    return float(np.exp(certainties.mean() - _negative_entropy(total / len(features))))


def scores_without_each(features: Features) -> NDArray[np.float64]:
    """Return the Inception Scores without each one of the images, (m,)."""
    total, certainties = _sums(features)
    others = len(features) - 1
    if not others:
        return np.ones(1)
    scores = np.empty(len(features))
    for start in range(0, len(features), BLOCK):
        rows = slice(start, start + BLOCK)
        # rounding may leave less than 0 for a class of one image
        rest = np.maximum(total - features.select(rows).probabilities(), 0) / others
        scores[rows] = np.exp((certainties.sum() - certainties[rows]) / others - _negative_entropy(rest))
    return scores


def _sums(features: Features) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Σ_i p_i, (k,), and −H(p_i) of each image, (m,)."""
    total, certainties = 0.0, []
    for start in range(0, len(features), BLOCK):
        probabilities = features.select(slice(start, start + BLOCK)).probabilities()
        total = total + probabilities.sum(axis=0)
        certainties.append(_negative_entropy(probabilities))
    return np.asarray(total), np.concatenate(certainties)


def _negative_entropy(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Σ p log p over the last axis, with 0 log 0 = 0."""
    from scipy.special import xlogy

    return xlogy(probabilities, probabilities).sum(axis=-1)
