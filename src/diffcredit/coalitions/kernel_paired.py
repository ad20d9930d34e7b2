"""The Shapley kernel in complement pairs."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.coalitions.design import check_request
from diffcredit.coalitions.kernel import Kernel, draw_kernel
from diffcredit.coalitions.members import Allowed
from diffcredit.coalitions.pairs import paired, with_complements
from diffcredit.util.arrays import BoolArray


@dataclass(frozen=True)
class KernelPaired:
    """Independent draws from the Shapley kernel, each followed by its complement; duplicates allowed."""

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> NDArray[np.float64]:
        return Kernel.size_probabilities(n)

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        pairs = range(start // 2, -(-(start + count) // 2))
        firsts = draw_kernel("kernel-paired", self.seed, pairs, Allowed(n, with_complements(exclude)))
        return paired(firsts)[start % 2 :][:count]
