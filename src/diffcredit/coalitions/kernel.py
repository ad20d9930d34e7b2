"""The Shapley kernel: independent sizes, duplicates allowed, as in KernelSHAP."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.coalitions.design import (
    BoolArray,
    check_contributors,
    check_request,
    count_available,
    excluded_by_size,
    random_coalition,
    row_generator,
)


@dataclass(frozen=True)
class Kernel:
    """Size k with probability ∝ (n−1)/(k(n−k)), then a uniformly random coalition of that size."""

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> NDArray[np.float64]:
        check_contributors(n)
        sizes = np.arange(1, n)
        kernel = (n - 1) / (sizes * (n - sizes))
        return kernel / kernel.sum()

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        excluded = excluded_by_size(n, exclude)
        cumulative = np.cumsum(self.size_probabilities(n))
        rows = np.zeros((count, n), dtype=np.bool_)
        for offset in range(count):
            generator = row_generator("kernel", self.seed, n, start + offset)
            # Rounding may leave the last cumulative probability below a uniform close to 1.
            size = 1 + min(int(np.searchsorted(cumulative, generator.random(), side="right")), n - 2)
            count_available(n, size, excluded)
            row = random_coalition(generator, n, size)
            while row.tobytes() in excluded.get(size, ()):
                row = random_coalition(generator, n, size)
            rows[offset] = row
        return rows
