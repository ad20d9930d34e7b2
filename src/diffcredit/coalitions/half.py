"""Every contributor a fair coin: the design of the Banzhaf value."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.coalitions.design import check_request
from diffcredit.coalitions.sizes import balanced_sizes, coin_sizes
from diffcredit.coalitions.spread import draw_spread
from diffcredit.util.arrays import BoolArray


@dataclass(frozen=True)
class Half:
    """Sizes Binomial(n, ½) on 1..n−1, balanced at every length; no duplicates while another of the size is left."""

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> NDArray[np.float64]:
        return coin_sizes(n)

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        sizes = balanced_sizes("half", self.seed, n, self.size_probabilities(n), start + count)
        return draw_spread("half", self.seed, n, sizes, start, exclude)
