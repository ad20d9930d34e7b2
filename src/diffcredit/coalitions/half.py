"""Designs with binomial sizes, as if every contributor joined by a fair coin: half (for Banzhaf values) and mix."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.coalitions.design import check_request
from diffcredit.coalitions.sizes import balanced_sizes, coin_sizes
from diffcredit.coalitions.spread import draw_spread
from diffcredit.util.arrays import BoolArray, FloatArray


@dataclass(frozen=True)
class Half:
    """Sizes Binomial(n, ½) on 1..n−1, balanced at every length; no duplicates while another of the size is left."""

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> FloatArray:
        return coin_sizes(n)

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        sizes = balanced_sizes("half", self.seed, n, self.size_probabilities(n), start + count)
        return draw_spread("half", self.seed, n, sizes, start, exclude)


@dataclass(frozen=True)
class Mix:
    """Sizes ½ Binomial(n, ½) + ½ arcsine: half of the coalitions of middle sizes, half spread out to the ends.

    Balanced at every length; no duplicates while another of the size is left. The arcsine distribution is
    ∝ (s(n−s))^(−½).
    """

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> FloatArray:
        coin = coin_sizes(n)
        sizes = np.arange(1, n)
        arcsine = 1 / np.sqrt(sizes * (n - sizes))
        return (coin + arcsine / arcsine.sum()) / 2

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        sizes = balanced_sizes("mix", self.seed, n, self.size_probabilities(n), start + count)
        return draw_spread("mix", self.seed, n, sizes, start, exclude)
