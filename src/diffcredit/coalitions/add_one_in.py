"""Each contributor alone."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.coalitions.design import check_request
from diffcredit.coalitions.finite import draw_finite
from diffcredit.coalitions.sizes import one_size
from diffcredit.util.arrays import BoolArray


@dataclass(frozen=True)
class AddOneIn:
    """The n coalitions {i}, in random order."""

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> NDArray[np.float64]:
        return one_size(n, 1)

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        return draw_finite("add-one-in", self.seed, np.eye(n, dtype=np.bool_), start, count, exclude)
