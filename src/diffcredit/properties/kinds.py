"""Kinds of property that several of ours are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.features import Features
from diffcredit.features.extractors import label_of
from diffcredit.properties.base import Property
from diffcredit.properties.bootstrap import mean_error, resamples

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
