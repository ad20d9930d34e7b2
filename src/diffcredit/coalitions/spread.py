"""Coalitions that overlap with earlier ones as evenly as possible.

With random members the columns of a design are correlated by chance, which multiplies the variance of a regression of m
evaluations on n contributors by m/(m − n). Two coalitions of sizes s and t share s·t/n members on average. Among
several candidates, the one whose overlaps with all earlier rows deviate least from that is taken. This does not depend
on which contributor is which, so each row by itself is still uniformly random among the coalitions of its size.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.coalitions.members import Urn, stack, stream
from diffcredit.util.arrays import BoolArray

CANDIDATES = 32
# There are fewer candidates once candidates × rows × contributors exceeds this. It determines the rows of a design, so
# it must never change.
OVERLAPS = 10_000_000


def draw_spread(
    name: str, seed: int, n: int, sizes: Sequence[int], start: int, exclude: Iterable[ArrayLike]
) -> BoolArray:
    """Return (len(sizes) − start, n): one coalition per size, each the best of several, without the first ``start``.

    Rows before ``start`` are drawn too, since later ones depend on them.
    """
    urn, overlaps, rows = Urn(n, exclude), OverlapDeviations(n), []
    for index, size in enumerate(sizes):
        count = max(1, min(CANDIDATES, OVERLAPS // (n * (index + 1))))
        candidates = urn.candidates(stream(name, seed, n, index), size, count)
        best = candidates[int(np.argmin(overlaps.of(candidates, size))) if len(candidates) > 1 else 0]
        urn.take(best)
        overlaps.add(best, size)
        rows.append(best)
    return stack(rows[start:], n)


class OverlapDeviations:
    """Squared deviations of a coalition's overlaps with the rows so far, in a time that does not grow with the rows.

    With S as a vector of 0 and 1, Σ_j (n|S ∩ S_j| − s·s_j)² = n² Sᵀ(Σ S_jS_jᵀ)S − 2ns Sᵀ(Σ s_jS_j) + s² Σ s_j², so
    three sums over the rows suffice. They are updated every n rows, which is faster than after each.
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
        """Return (k,): n² Σ_j (|S ∩ S_j| − s·s_j/n)² for each candidate S (k, n), in integers, so that every machine
        makes the same choice."""
        n, latest, table = self._n, self._latest, candidates.astype(np.float32)
        overlaps = (table @ self._rows[:latest].T).astype(np.int64)
        latest_rows = ((n * overlaps - size * self._sizes[:latest]) ** 2).sum(axis=1)
        pairs = ((table @ self._pairs) * table).sum(axis=1).astype(np.int64)
        weighted = (table @ self._weighted).astype(np.int64)
        return latest_rows + n**2 * pairs - 2 * n * size * weighted + size**2 * self._squares
