"""The property of a coalition's own training images, without any model: the control for every surrogate."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.settings import Count
from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.features.extractors import Extractors
from diffcredit.properties import Images, as_property
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


@dataclass(frozen=True, eq=False)
class RealData:
    """G(S) = ``prop`` of the training images of S, as if its model made exactly those.

    ``prop`` is fitted and measures images, or features by ``extractors``. Each coalition is measured once. The empty
    coalition has no images, so G(∅) is undefined.
    """

    prop: Any
    contributions: Contributions
    extractors: Extractors = field(default_factory=Extractors)
    _known: dict[bytes, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prop", as_property(self.prop))
        if needs_model(self.prop):
            raise UserError(
                f"property {self.prop.name!r} measures the model itself; real data has no model, and a property "
                "with measure(images) is accepted"
            )

    def __call__(self, coalitions: BoolArray) -> NDArray[np.float64]:
        return np.array([self._value(coalition) for coalition in coalitions], dtype=np.float64)

    def _value(self, coalition: BoolArray) -> float:
        key = coalition.tobytes()
        if key not in self._known:
            rows = self.contributions.of(coalition)
            if len(rows) == 0:
                raise UserError(f"property {self.prop.name!r} of real data: the empty coalition has no images")
            self._known[key] = measured_value(self.prop, self._observed(rows))
        return self._known[key]

    def _observed(self, rows: NDArray[np.int64]) -> Images | Features:
        if not needs_features(self.prop):
            return self.contributions.images[rows]
        return self._features.select(rows)

    @cached_property
    def _features(self) -> Features:
        return self.extractors.kept(self.prop.features, self.contributions.images, "the training images")
