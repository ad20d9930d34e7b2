"""Aesthetic scores of the generated images, by the LAION aesthetic predictors."""

from dataclasses import dataclass
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
from diffcredit.properties.directions import unit_rows
from diffcredit.properties.kinds import PercentileProperty


@dataclass
class Aesthetic(PercentileProperty):
    """A ``percentile`` (0 to 100, linearly interpolated) of the images' aesthetic scores, or with None their mean.

    The score of an image with CLIP embedding x is head(x/‖x‖), about 1 to 10. Heads: ``linear``, of
    LAION-AI/aesthetic-predictor, or ``mlp``, of christophschuhmann/improved-aesthetic-predictor; both are for the 768
    dimensions of CLIP ViT-L/14. ``weights`` names a file with a head of your own, of the same layers, which may be for
    another extractor.
    """

    head: Head = "linear"
    percentile: Annotated[float, Ge(0), Le(100)] | None = 90.0
    weights: str | None = None
    features: FeaturesOption = "clip"

    name = "aesthetic"
    unit = "points out of 10"

    @property
    def title(self) -> str:
        return f"Aesthetic score ({'mean' if self.percentile is None else f'percentile {self.percentile:g}'})"

    @property
    def explanation(self) -> str:
        if self.percentile is None:
            which = "This is their mean."
        else:
            which = f"{self.percentile:g} % of them score lower than this."
        return f"How much people would like the generated images, as a model of ratings from 1 to 10 predicts. {which}"

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
        """Read the head's arrays; raise a UserError if a published head was not made for these vectors."""
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
        """Return the score w·x/‖x‖ + b of each image, (m,)."""
        return unit_rows(features.vectors) @ self._weight + self._bias

    def measure_features(self, features: Features) -> float:
        return self._summary(features)
