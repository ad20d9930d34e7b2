"""The Shapley kernel, as in KernelSHAP: independent draws, duplicates allowed, plain or in complement pairs."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.coalitions.design import check_contributors, check_request
from diffcredit.coalitions.members import Allowed, paired, stack, stream, with_complements
from diffcredit.coalitions.sizes import sizes_at
from diffcredit.util.arrays import BoolArray, FloatArray


@dataclass(frozen=True)
class Kernel:
    """Size k with probability ∝ (n−1)/(k(n−k)), then a uniformly random coalition of that size."""

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> FloatArray:
        check_contributors(n)
        sizes = np.arange(1, n)
        kernel = (n - 1) / (sizes * (n - sizes))
        return kernel / kernel.sum()

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        return draw_kernel("kernel", self.seed, range(start, start + count), Allowed(n, exclude))


@dataclass(frozen=True)
class KernelPaired:
    """Draws from the Shapley kernel, each followed by its complement."""

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> FloatArray:
        return Kernel.size_probabilities(n)

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        pairs = range(start // 2, -(-(start + count) // 2))
        firsts = draw_kernel("kernel-paired", self.seed, pairs, Allowed(n, with_complements(exclude)))
        return paired(firsts)[start % 2 :][:count]


def draw_kernel(name: str, seed: int, indices: range, allowed: Allowed) -> BoolArray:
    """Return (len(indices), n): an independent draw from the kernel for each index."""
    n = allowed.n
    generators = [stream(name, seed, n, index) for index in indices]
    sizes = sizes_at([generator.random() for generator in generators], Kernel.size_probabilities(n))
    return stack([allowed.draw(generator, size) for generator, size in zip(generators, sizes, strict=True)], n)
