"""Leverage scores: every size equally likely, complement pairs without replacement."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.coalitions.design import check_request
from diffcredit.coalitions.members import Urn, paired, stack, stream, with_complements
from diffcredit.coalitions.sizes import balanced_sizes, equal_sizes
from diffcredit.util.arrays import BoolArray, FloatArray


@dataclass(frozen=True)
class Leverage:
    """A coalition of size s with probability ∝ 1/C(n, s), its leverage score in the kernel's least squares.

    Leverage SHAP (Musco and Witter 2025). Each coalition is followed by its complement, sizes are balanced at every
    even length, and no pair comes again while another of its two sizes is left.
    """

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> FloatArray:
        return equal_sizes(n)

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        urn = Urn(n, with_complements(exclude))
        pairs = -(-(start + count) // 2)
        smaller_sizes = balanced_sizes("leverage", self.seed, n, _smaller_probabilities(n), pairs)
        firsts = []
        for index, size in enumerate(smaller_sizes):
            generator = stream("leverage", self.seed, n, index)
            larger_first = generator.random() < 0.5
            row = urn.draw(generator, size)
            # At size n/2 the complement is in the urn too.
            urn.take(~row)
            firsts.append(~row if larger_first else row)
        return paired(stack(firsts, n))[start : start + count]


def _smaller_probabilities(n: int) -> FloatArray:
    """Return (⌊n/2⌋,): the probabilities of 1, …, ⌊n/2⌋ as the smaller size of a pair; n/2 counts as one size."""
    probabilities = np.full(n // 2, 2 / (n - 1))
    if n % 2 == 0:
        probabilities[-1] /= 2
    return probabilities
