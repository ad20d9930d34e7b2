"""Coalitions that overlap with earlier ones as evenly as can be had.

With random members the columns of a design are correlated by chance, and a regression of m evaluations on n
contributors pays for it with a variance larger by m/(m − n). Two coalitions of sizes s and t share s·t/n members
on average; of several candidates the one is taken whose overlaps with all earlier rows stray least from that. Which
contributor is which plays no part in it, so that each row by itself is still any coalition of its size.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.coalitions.design import BoolArray
from diffcredit.coalitions.members import Urn, stream

CANDIDATES = 32
# Overlaps that are counted for one row, at most: a long design of many contributors would otherwise take hours.
OVERLAPS = 10_000_000


def draw_spread(
    name: str, seed: int, n: int, sizes: Sequence[int], start: int, exclude: Iterable[ArrayLike]
) -> BoolArray:
    """(len(sizes) − start, n): one coalition a size from an urn, each the best of several, less the first ``start``.

    Rows before ``start`` are drawn too: later ones depend on them.
    """
    urn = Urn(n, exclude)
    # Single precision counts exactly to 2²⁴ members.
    rows, of_sizes = np.zeros((len(sizes), n), dtype=np.float32), np.array(sizes, dtype=np.int64)
    for index, size in enumerate(sizes):
        count = max(1, min(CANDIDATES, OVERLAPS // (n * (index + 1))))
        candidates = urn.candidates(stream(name, seed, n, index), size, count)
        best = 0
        if len(candidates) > 1:
            best = int(np.argmin(squared_strays(candidates, rows[:index], size, of_sizes[:index])))
        urn.take(candidates[best])
        rows[index] = candidates[best]
    return rows[start:].astype(np.bool_)


def squared_strays(
    candidates: BoolArray, rows: NDArray[np.float32], size: int, sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(k,): n² Σ_j (|S ∩ S_j| − s·s_j/n)² of each candidate S (k, n). In whole numbers, so that every machine
    chooses alike."""
    n = candidates.shape[1]
    overlaps = (candidates.astype(np.float32) @ rows.T).astype(np.int64)
    return ((n * overlaps - size * sizes) ** 2).sum(axis=1)
