"""How pleasing people find images like the generated ones, as the LAION aesthetic predictors foresee it."""

from dataclasses import dataclass
from math import inf
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.features import EXTRACTORS, Extractor, Features, FeaturesOption
from diffcredit.features.base import option_name
from diffcredit.properties.aesthetic_heads import Head, affine_map, read_head
from diffcredit.properties.base import Context, State
from diffcredit.properties.bootstrap import mean_error, resamples
from diffcredit.properties.directions import unit_rows


@dataclass
class Aesthetic:
    """A ``percentile`` (0 to 100, linearly interpolated) of the images' aesthetic scores, or with None their mean.

    The score of an image with the CLIP embedding x is head(x/‖x‖), about 1 to 10. Heads: ``linear``, of
    LAION-AI/aesthetic-predictor, or ``mlp``, of christophschuhmann/improved-aesthetic-predictor; both are for the 768
    dimensions of CLIP ViT-L/14. ``weights`` names a file with a head of your own, of the same layers, which may be for
    another extractor.
    """

    head: Head = "linear"
    percentile: Annotated[float, Ge(0), Le(100)] | None = 90.0
    weights: str | None = None
    features: FeaturesOption = "clip"

    name = "aesthetic"
    higher_is_better = True
    unit = "points out of 10"
    range = (-inf, inf)

    @property
    def title(self) -> str:
        return f"Aesthetic score ({'mean' if self.percentile is None else f'percentile {self.percentile:g}'})"

    @property
    def explanation(self) -> str:
        if self.percentile is None:
            which = "This is their mean."
        else:
            which = f"{self.percentile:g} % of them score lower than this."
        return f"How much people would like the generated images, as a model of ratings from 1 to 10 foresees. {which}"

    @property
    def bias(self) -> str:
        if self.percentile is None:
            return "None, as it is a mean over the images."
        return "Slight: with few images a high percentile comes out a little too low, a low one a little too high."

    def check(self, contributions: Contributions, images: int) -> None:
        self._layers()

    def check_extractor(self, extractor: Extractor, contributions: Contributions) -> None:
        needed = len(affine_map(self.head, self._layers())[0])
        if extractor.dimensions != needed:
            hint = ", those of CLIP ViT-L/14" if self.weights is None else ""
            raise UserError(
                f"aesthetic.features: {self.features!r} has {extractor.dimensions} dimensions; the head needs "
                f"{needed}{hint}"
            )

    def fit(self, context: Context) -> State:
        self.check_extractor(context.extractors.get(self.features), context.contributions)
        return self._layers()

    def _layers(self) -> State:
        """The head's arrays; refuses a published one for vectors that it was not made for."""
        extractor = option_name(self.features)
        if self.weights is None and extractor in EXTRACTORS and extractor != "clip":
            raise UserError(
                f"aesthetic.features: the published heads are not for {extractor!r}; accepted: clip, a plug-in of "
                "CLIP ViT-L/14, or any extractor with a head of your own in aesthetic.weights"
            )
        return read_head(self.head, self.weights, "aesthetic.weights")

    def restore(self, state: State) -> None:
        self._weight, self._bias = affine_map(self.head, state)

    def of_each(self, features: Features) -> NDArray[np.float64]:
        """w·x/‖x‖ + b of each image, (m,)."""
        return unit_rows(features.vectors) @ self._weight + self._bias

    def measure_features(self, features: Features) -> float:
        values = self.of_each(features)
        return float(values.mean() if self.percentile is None else np.percentile(values, self.percentile))

    def standard_error(self, features: Features) -> float:
        """By the bootstrap."""
        values = self.of_each(features)
        if self.percentile is None:
            return mean_error(values)
        return float(np.percentile(values[resamples(len(values))], self.percentile, axis=1).std())
