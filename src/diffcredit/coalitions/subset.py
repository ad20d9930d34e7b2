"""Coalitions of one size: the design of LDS tests."""

from collections.abc import Iterable
from dataclasses import dataclass

from numpy.typing import ArrayLike

from diffcredit.coalitions.design import check_request
from diffcredit.coalitions.members import draw_sizes
from diffcredit.coalitions.sizes import one_size
from diffcredit.util.arrays import BoolArray, FloatArray


@dataclass(frozen=True)
class Subset:
    """All of size round(alpha·n), at least 1 and at most n−1, 0 < alpha < 1; no duplicates while another is left."""

    alpha: float
    seed: int = 0

    def size_probabilities(self, n: int) -> FloatArray:
        return one_size(n, self._size(n))

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        sizes = [self._size(n)] * (start + count)
        return draw_sizes(f"subset({self.alpha})", self.seed, n, sizes, start, exclude)

    def _size(self, n: int) -> int:
        return min(max(round(self.alpha * n), 1), n - 1)
