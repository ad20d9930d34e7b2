"""Distributions of coalition sizes, and sequences of sizes that follow a distribution at every length."""

from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.coalitions.design import check_contributors
from diffcredit.util.arrays import FloatArray
from diffcredit.util.seeds import derive_seed

BITS = 53


def equal_sizes(n: int) -> FloatArray:
    """Return (n−1,): all sizes equally probable."""
    check_contributors(n)
    return np.full(n - 1, 1 / (n - 1))


def one_size(n: int, size: int) -> FloatArray:
    """Return (n−1,): probability 1 for ``size``."""
    check_contributors(n)
    return (np.arange(1, n) == size).astype(np.float64)


def coin_sizes(n: int) -> FloatArray:
    """Return (n−1,): C(n, s) / (2ⁿ − 2), so that all coalitions but the empty and the full one are equally probable."""
    check_contributors(n)
    # Python's integers, since C(n, s) and 2ⁿ exceed a float from n = 1030 on.
    return np.array([comb(n, size) / (2**n - 2) for size in range(1, n)])


def sizes_at(quantiles: ArrayLike, probabilities: FloatArray) -> list[int]:
    """Return the size at each quantile in [0, 1): the inverse of the cumulative distribution."""
    # Rounding may leave the last cumulative probability below a quantile close to 1.
    largest = np.flatnonzero(probabilities)[-1]
    below = np.searchsorted(np.cumsum(probabilities), quantiles, side="right")
    return (1 + np.minimum(below, largest)).tolist()


def balanced_sizes(name: str, seed: int, n: int, probabilities: FloatArray, count: int) -> list[int]:
    """Return the first ``count`` sizes, each distributed as ``probabilities``, balanced at every length.

    Among the first L sizes, the number in any range R of sizes differs from L·p(R) by at most 1 + log₂(L)/3. The sizes
    are the quantiles at van der Corput's sequence, shifted at random modulo 1, whose discrepancy is at most
    (1 + log₂(L)/3)/L over intervals (Béjian and Faure 1977), hence over their complements and shifted intervals.
    """
    shift = derive_seed("coalitions", name, seed, n, "sizes") >> (63 - BITS)
    # In integers: the same on every machine.
    points = (_van_der_corput(count) + shift) % 2**BITS
    return sizes_at(points / 2**BITS, probabilities)


def _van_der_corput(count: int) -> NDArray[np.int64]:
    """Return (count,): the binary digits of 0, 1, 2, … mirrored at the point, times 2^BITS."""
    indices = np.arange(count, dtype=np.int64)
    points = np.zeros(count, dtype=np.int64)
    for digit in range(int(count).bit_length()):
        points |= (indices >> digit & 1) << (BITS - 1 - digit)
    return points
