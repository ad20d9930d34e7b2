"""Coalitions as text, and random ones: sizes that follow a distribution at every length, and members of a given size,
with exclusions, without replacement, and with overlaps that are as even as possible."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray
from diffcredit.util.seeds import derive_seed

BITS = 53
CANDIDATES = 32
# Fewer candidates once candidates × rows × contributors exceeds this. It determines a design's rows: never change it.
OVERLAPS = 10_000_000


def encode(coalition: ArrayLike) -> str:
    """Return (n,) booleans as "0101…", n characters in the order of the contributors."""
    row = np.asarray(coalition)
    if row.ndim != 1 or not (row.dtype == np.bool_ or np.isin(row, (0, 1)).all()):
        raise UserError(f"coalition of shape {row.shape}: expected one vector of booleans")
    return (row.astype(np.uint8) + ord("0")).tobytes().decode()


def decode(text: str) -> BoolArray:
    """Return (n,) booleans, the inverse of `encode`."""
    if not text or text.strip("01"):
        raise UserError(f"coalition {text!r}: expected one 0 or 1 per contributor")
    return np.frombuffer(text.encode(), np.uint8) == ord("1")


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
    # The binary digits of 0, 1, 2, … mirrored at the point, times 2^BITS: in integers the same on every machine.
    indices = np.arange(count, dtype=np.int64)
    points = np.zeros(count, dtype=np.int64)
    for digit in range(int(count).bit_length()):
        points |= (indices >> digit & 1) << (BITS - 1 - digit)
    shift = derive_seed("coalitions", name, seed, n, "sizes") >> (63 - BITS)
    return sizes_at((points + shift) % 2**BITS / 2**BITS, probabilities)


def stream(name: str, seed: int, n: int, *index: int) -> np.random.Generator:
    """Return a design's random stream; one per ``index``, so that redrawing a row leaves the others as they are."""
    return np.random.Generator(np.random.PCG64(derive_seed("coalitions", name, seed, n, *index)))


def random_order(generator: np.random.Generator, n: int) -> np.ndarray:
    """Return (n,): a uniformly random permutation of 0, …, n−1."""
    # Sorting uniforms uses only the most stable part of numpy's random stream, unlike choice or permutation.
    return np.argsort(generator.random(n), kind="stable")


def lowest(numbers: FloatArray, count: int) -> BoolArray:
    """Return (…, n): whether a number is among the ``count`` lowest of its row (…, n), of equal ones the first."""
    found = numbers <= np.partition(numbers, count - 1)[..., count - 1, None]
    if found.sum() > count * (found.size // found.shape[-1]):  # equal numbers: partition does not order them
        found[:] = False
        np.put_along_axis(found, np.argsort(numbers, kind="stable")[..., :count], True, axis=-1)
    return found


def stack(rows: Sequence[BoolArray], n: int) -> BoolArray:
    """Return (len(rows), n), even if there are no rows."""
    return np.array(rows, dtype=np.bool_).reshape(-1, n)


class Allowed:
    """The coalitions of n contributors that are not excluded."""

    def __init__(self, n: int, exclude: Iterable[ArrayLike]) -> None:
        self.n = n
        sizes: dict[bytes, int] = {}
        for vector in exclude:
            row = np.asarray(vector, dtype=np.bool_)
            if row.shape != (n,):
                raise UserError(f"exclude: a coalition of shape {row.shape}; expected ({n},)")
            sizes[row.tobytes()] = int(row.sum())
        self._excluded = sizes.keys()
        self._excluded_of_size = Counter(sizes.values())

    def __contains__(self, row: BoolArray) -> bool:
        return row.tobytes() not in self._excluded

    def count(self, size: int) -> int:
        """Return how many coalitions of ``size`` there are. Raise UserError if there is none."""
        count = comb(self.n, size) - self._excluded_of_size[size]
        if count == 0:
            raise UserError(f"exclude: leaves no coalition of size {size} of {self.n} contributors; leave at least one")
        return count

    def draw(self, generator: np.random.Generator, size: int) -> BoolArray:
        """Return (n,): a uniformly random coalition of ``size``."""
        self.count(size)
        while True:
            row = lowest(generator.random(self.n), size)
            if row in self:
                return row


class Urn(Allowed):
    """`Allowed` without replacement: a coalition comes again only when all of its size have come as often."""

    def __init__(self, n: int, exclude: Iterable[ArrayLike]) -> None:
        super().__init__(n, exclude)
        self._taken: defaultdict[int, set[bytes]] = defaultdict(set)

    def draw(self, generator: np.random.Generator, size: int) -> BoolArray:
        row = self._peek(generator, size)
        self.take(row)
        return row

    def candidates(self, generator: np.random.Generator, size: int, count: int) -> BoolArray:
        """Return (1..count, n): coalitions of ``size`` that may come next; `take` one of them."""
        first = self._peek(generator, size)
        others = lowest(generator.random((count - 1, self.n)), size)
        taken = self._taken[size]
        return stack([first, *(row for row in others if row in self and row.tobytes() not in taken)], self.n)

    def _peek(self, generator: np.random.Generator, size: int) -> BoolArray:
        taken = self._taken[size]
        if len(taken) == self.count(size):
            taken.clear()
        row = super().draw(generator, size)
        while row.tobytes() in taken:
            row = super().draw(generator, size)
        return row

    def take(self, row: BoolArray) -> None:
        """Count ``row`` as drawn."""
        self._taken[int(row.sum())].add(row.tobytes())


def draw_even(
    name: str, seed: int, n: int, sizes: Sequence[int], start: int, exclude: Iterable[ArrayLike]
) -> BoolArray:
    """Return (len(sizes) − start, n): one coalition per size, which overlap as evenly as possible, from ``start`` on.

    With random members the columns of a design are correlated by chance, which multiplies the variance of a regression
    of m evaluations on n contributors by m/(m − n). Two coalitions of sizes s and t share s·t/n members on average.
    Among several candidates, the one whose overlaps with all earlier rows deviate least from that is taken. This does
    not depend on which contributor is which, so each row by itself is still uniformly random among those of its size.
    """
    urn, overlaps, rows = Urn(n, exclude), OverlapDeviations(n), []
    for index, size in enumerate(sizes):  # those before start too, since later ones depend on them
        count = max(1, min(CANDIDATES, OVERLAPS // (n * (index + 1))))
        candidates = urn.candidates(stream(name, seed, n, index), size, count)
        best = candidates[int(np.argmin(overlaps.of(candidates, size))) if len(candidates) > 1 else 0]
        urn.take(best)
        if count > 1:  # otherwise no later row is compared
            overlaps.add(best, size)
        rows.append(best)
    return stack(rows[start:], n)


class OverlapDeviations:
    """Squared deviations of a coalition's overlaps with the rows so far, in a time that does not grow with the rows.

    With S as a vector of 0 and 1, Σ_j (n|S ∩ S_j| − s·s_j)² = n² Sᵀ(Σ S_jS_jᵀ)S − 2ns Sᵀ(Σ s_jS_j) + s² Σ s_j², so
    three sums over the rows suffice. Rows join the first sum 2n at a time; the last ones are compared one by one.
    """

    def __init__(self, n: int) -> None:
        # Products of float32 are fast. Whole numbers are exact up to 2²⁴, and n × rows stays below `OVERLAPS`.
        self._last, self._count = np.zeros((2 * n, n), np.float32), 0
        self._pairs: NDArray[np.float32] | None = None  # of those before the last ones
        self._weighted, self._squares = np.zeros(n), 0

    def add(self, row: BoolArray, size: int) -> None:
        self._last[self._count] = row
        self._count += 1
        self._weighted[row] += size
        self._squares += size**2
        if self._count == len(self._last):
            pairs = self._last.T @ self._last
            self._pairs, self._count = pairs if self._pairs is None else self._pairs + pairs, 0

    def of(self, candidates: BoolArray, size: int) -> NDArray[np.int64]:
        """Return (k,): n² Σ_j (|S ∩ S_j| − s·s_j/n)² of each candidate S (k, n): integers, equal on every machine."""
        n, table = len(self._weighted), candidates.astype(np.float32)
        overlaps = (table @ self._last[: self._count].T).astype(np.int64)
        pairs = (overlaps**2).sum(axis=1)
        if self._pairs is not None:
            pairs += ((table @ self._pairs) * table).sum(axis=1, dtype=np.float64).astype(np.int64)
        weighted = (table.astype(np.float64) @ self._weighted).astype(np.int64)
        return n**2 * pairs - 2 * n * size * weighted + size**2 * self._squares
