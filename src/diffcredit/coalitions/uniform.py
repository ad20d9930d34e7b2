"""The default design: every size equally often, members spread evenly, no duplicates."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.coalitions.design import check_request
from diffcredit.coalitions.sizes import equal_sizes
from diffcredit.coalitions.spread import draw_spread
from diffcredit.util.arrays import BoolArray, FloatArray
from diffcredit.util.seeds import derive_seed

GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Uniform:
    """Every block of n−1 rows has every size once, and every prefix of a block spreads over all sizes.

    Rows overlap with earlier ones as evenly as possible (see `spread`). No coalition comes again while another of its
    size has come less often.
    """

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> FloatArray:
        return equal_sizes(n)

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        return draw_spread("uniform", self.seed, n, self._sizes(n, start + count), start, exclude)

    def _sizes(self, n: int, count: int) -> list[int]:
        """Return the first ``count`` sizes: in each block the sizes in golden-ratio order, rotated at random."""
        # Multiples of the golden ratio modulo 1 fill the unit interval evenly at every length. Their ranks are a
        # permutation of the sizes with the same property; the rotation makes each row's size uniform.
        ranks = np.argsort(np.argsort(np.arange(n - 1) * GOLDEN % 1.0, kind="stable"), kind="stable")
        sizes: list[int] = []
        for block in range(-(-count // (n - 1))):
            rotation = derive_seed("coalitions", "uniform", self.seed, n, "sizes", block) % (n - 1)
            sizes.extend(1 + (int(rank) + rotation) % (n - 1) for rank in ranks)
        return sizes[:count]
