"""The property of a coalition's own training images, without any model: the control for every surrogate."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.settings import Count
from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.features.extractors import Extractors
from diffcredit.properties import as_property
from diffcredit.properties.base import needs_features, needs_model
from diffcredit.properties.measuring import measured_value
from diffcredit.surrogates.base import ImageSurrogate, Material, Work
from diffcredit.util.arrays import BoolArray


@dataclass
class RealImages(ImageSurrogate):
    """A coalition's own training images, as if its model made exactly those."""

    coalitions: Count = 1000

    def work(self, n: int, coalitions: int) -> Work:
        return Work()

    def prepare(self, material: Material) -> None:
        self._contributions = material.contributions
        self.library = material.contributions.images

    def rows(self, coalition: BoolArray) -> NDArray[np.int64]:
        return self._contributions.of(coalition)


class RealData:
    """G(S) = ``prop`` of the training images of S, as if its model made exactly those.

    ``prop`` is fitted and measures images, or features by ``extractors``. The empty coalition has no images, so G(∅) is
    undefined.
    """

    def __init__(self, prop: Any, contributions: Contributions, extractors: Extractors | None = None) -> None:
        self._prop, self._contributions = as_property(prop), contributions
        if needs_model(self._prop):
            raise UserError(
                f"property {self._prop.name!r} measures the model itself; real data has no model, and a property "
                "with measure(images) is accepted"
            )
        self._features: Features | None = None
        if needs_features(self._prop):
            extractors = extractors or Extractors()
            self._features = extractors.kept(self._prop.features, contributions.images, "the training images")

    def __call__(self, coalitions: BoolArray) -> NDArray[np.float64]:
        return np.array([self._value(coalition) for coalition in coalitions], dtype=np.float64)

    def _value(self, coalition: BoolArray) -> float:
        rows = self._contributions.of(coalition)
        if len(rows) == 0:
            raise UserError(f"property {self._prop.name!r} of real data: the empty coalition has no images")
        seen = self._contributions.images[rows] if self._features is None else self._features.select(rows)
        return measured_value(self._prop, seen)
