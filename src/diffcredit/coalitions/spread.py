"""Coalitions that overlap with earlier ones as evenly as can be had.

With random members the columns of a design are correlated by chance, and a regression of m evaluations on n
contributors pays for it with a variance larger by m/(m − n). Two coalitions of sizes s and t share s·t/n members
on average; of several candidates the one is taken whose overlaps with all earlier rows stray least from that. Which
contributor is which plays no part in it, so that each row by itself is still any coalition of its size.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.coalitions.members import Urn, stack, stream
from diffcredit.util.arrays import BoolArray

CANDIDATES = 32
# Candidates are fewer from where candidates × rows × contributors exceed this. Which rows a design has rests on it:
# it must never change.
OVERLAPS = 10_000_000


def draw_spread(
    name: str, seed: int, n: int, sizes: Sequence[int], start: int, exclude: Iterable[ArrayLike]
) -> BoolArray:
    """(len(sizes) − start, n): one coalition a size from an urn, each the best of several, less the first ``start``.

    Rows before ``start`` are drawn too: later ones depend on them.
    """
    urn, strays, rows = Urn(n, exclude), Strays(n), []
    for index, size in enumerate(sizes):
        count = max(1, min(CANDIDATES, OVERLAPS // (n * (index + 1))))
        candidates = urn.candidates(stream(name, seed, n, index), size, count)
        best = candidates[int(np.argmin(strays.of(candidates, size))) if len(candidates) > 1 else 0]
        urn.take(best)
        strays.add(best, size)
        rows.append(best)
    return stack(rows[start:], n)


class Strays:
    """How far a coalition's overlaps with rows so far stray from the average, in a time that does not grow with them.

    With S as a vector of 0 and 1, Σ_j (n|S ∩ S_j| − s·s_j)² = n² Sᵀ(Σ S_jS_jᵀ)S − 2ns Sᵀ(Σ s_jS_j) + s² Σ s_j²: the
    three sums are all that is needed of rows. They take n rows at a time, which is faster than one by one.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        # floats for speed: they hold whole numbers, double precision exactly to 2⁵³, single to 2²⁴
        self._pairs, self._weighted, self._squares = np.zeros((n, n)), np.zeros(n), 0
        self._rows, self._sizes = np.zeros((n, n), dtype=np.float32), np.zeros(n, dtype=np.int64)
        self._latest = 0  # how many of these are not yet in the sums

    def add(self, row: BoolArray, size: int) -> None:
        self._rows[self._latest], self._sizes[self._latest] = row, size
        self._latest += 1
        if self._latest == self._n:
            self._pairs += self._rows.T @ self._rows
            self._weighted += self._sizes @ self._rows.astype(np.float64)
            self._squares += int(self._sizes @ self._sizes)
            self._latest = 0

    def of(self, candidates: BoolArray, size: int) -> NDArray[np.int64]:
        """(k,): n² Σ_j (|S ∩ S_j| − s·s_j/n)² of each candidate S (k, n). In whole numbers, so that every machine
        chooses alike."""
        n, latest, table = self._n, self._latest, candidates.astype(np.float32)
        overlaps = (table @ self._rows[:latest].T).astype(np.int64)
        strays = ((n * overlaps - size * self._sizes[:latest]) ** 2).sum(axis=1)
        if not self._squares:
            return strays
        pairs = ((table @ self._pairs) * table).sum(axis=1).astype(np.int64)
        weighted = (table @ self._weighted).astype(np.int64)
        return strays + n**2 * pairs - 2 * n * size * weighted + size**2 * self._squares
