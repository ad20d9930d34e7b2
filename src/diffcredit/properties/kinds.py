"""Kinds of property that several of ours are, and their standard errors over fresh sets of generated images."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.features import Features
from diffcredit.features.extractors import label_of
from diffcredit.properties.base import Property

RESAMPLES = 200  # the relative error of a standard error is then 5 %
GROUPS = 20
SPLITS = 32  # into halves: the relative error of a standard error is then 13 %
NO_BIAS = "None, as it is a mean over the images."


class FeatureProperty(Property):
    """A property of features. Its title is its ``heading`` with the extractor's name."""

    heading = ""

    @property
    def title(self) -> str:
        return f"{self.heading} ({label_of(self.features)})"


class MeanProperty(FeatureProperty):
    """The mean over images of a number that each of them has."""

    bias = NO_BIAS

    def _each(self, features: Features) -> NDArray[np.float64]:
        """Return the number of each image, (m,)."""
        raise NotImplementedError

    def measure_features(self, features: Features) -> float:
        return float(self._each(features).mean())

    def standard_error(self, features: Features) -> float:
        return mean_error(self._each(features))


class PercentileProperty(Property):
    """The mean of :meth:`of_each` over images or, unless it is None, a ``percentile``, linearly interpolated."""

    percentile: float | None

    @property
    def bias(self) -> str:
        if self.percentile is None:
            return NO_BIAS
        return "Slight: with few images a high percentile comes out a little too low, a low one a little too high."

    def _summary(self, observed: Any) -> float:
        values = self.of_each(observed)
        return float(values.mean() if self.percentile is None else np.percentile(values, self.percentile))

    def standard_error(self, observed: Any) -> float:
        """Estimate it by the bootstrap."""
        values = self.of_each(observed)
        if self.percentile is None:
            return mean_error(values)
        return float(np.percentile(values[resamples(len(values))], self.percentile, axis=1).std())


def resamples(images: int) -> NDArray[np.int64]:
    """Draw 200 resamples with replacement, (200, images) indices; the same on every machine."""
    uniform = np.random.Generator(np.random.PCG64(0)).random((RESAMPLES, images))
    return (uniform * images).astype(np.int64)


def resampled_counts(labels: NDArray[np.int64], kinds: int) -> NDArray[np.int64]:
    """Count each label in each resample, (200, kinds); ``labels`` (m,) of the images are in 0..kinds−1."""
    drawn = labels[resamples(len(labels))]
    numbered = drawn + kinds * np.arange(len(drawn))[:, None]  # each resample has labels of its own
    return np.bincount(numbered.ravel(), minlength=kinds * len(drawn)).reshape(len(drawn), kinds)


def mean_error(values: NDArray[np.float64]) -> float:
    """Return the standard error of the mean of values (m,) by the bootstrap, in closed form σ/√m."""
    return float(values.std() / np.sqrt(len(values)))


def groups(images: int) -> NDArray[np.int64]:
    """Return each image's group for the jackknife, (images,): 20 groups or, below 40 images, groups of 2 or 3."""
    # images of successive seeds are in different groups, so that prompts that come in turn are spread over all
    return np.arange(images) % max(2, min(GROUPS, images // 2))


def jackknife_error(left_out: NDArray[np.float64]) -> float:
    """Return √((g − 1)/g Σ (θ_(j) − θ̄)²) of the values θ_(j), (g,), without each of g groups (Efron and Stein 1981)."""
    return float(np.sqrt((len(left_out) - 1) * left_out.var()))


def halves(images: int) -> NDArray[np.bool_]:
    """Draw 32 random splits of the images into halves, (32, images); the same on every machine."""
    uniform = np.random.Generator(np.random.PCG64(0)).random((SPLITS, images))
    return uniform.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable") < images // 2


def halves_error(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """Return the standard error of the share of n reference images that are covered.

    ``one`` and ``other``, (s, n) each, say which are covered by the first and the second half of the images in each of
    s splits. Two halves are independent sets, so that the mean of (share − share')²/2 is the variance V for half as
    many images. V is the sum of D = Σ p (1 − p)/n², of each reference image by itself, which does not fall with the
    number of images, and of covariances, which fall as one over that number. For all images: D + (V − D)/2.
    """
    variance = np.square(one.mean(axis=1) - other.mean(axis=1)).mean() / 2
    own = (one != other).mean() / 2 / one.shape[1]
    return float(np.sqrt((variance + own) / 2))
