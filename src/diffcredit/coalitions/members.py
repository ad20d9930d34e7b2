"""Random coalitions of a given size, with exclusions, without replacement, and in complement pairs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray
from diffcredit.util.seeds import derive_seed


def stream(name: str, seed: int, n: int, *index: int) -> np.random.Generator:
    """Return a design's random stream; one per ``index``, so that redrawing a row leaves the others as they are."""
    return np.random.Generator(np.random.PCG64(derive_seed("coalitions", name, seed, n, *index)))


def random_order(generator: np.random.Generator, n: int) -> np.ndarray:
    """Return (n,): a uniformly random permutation of 0, …, n−1."""
    # Sorting uniforms uses only the most stable part of numpy's random stream, unlike choice or permutation.
    return np.argsort(generator.random(n), kind="stable")


def random_coalition(generator: np.random.Generator, n: int, size: int) -> BoolArray:
    """Return (n,): a uniformly random coalition of ``size`` members."""
    row = np.zeros(n, dtype=np.bool_)
    row[random_order(generator, n)[:size]] = True
    return row


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
        self._counts: dict[int, int] = {}

    def __contains__(self, row: BoolArray) -> bool:
        return row.tobytes() not in self._excluded

    def count(self, size: int) -> int:
        """Return how many coalitions of ``size`` there are. Raise UserError if there is none."""
        if size not in self._counts:
            self._counts[size] = comb(self.n, size) - self._excluded_of_size[size]
        if self._counts[size] == 0:
            raise UserError(f"exclude: leaves no coalition of size {size} of {self.n} contributors; leave at least one")
        return self._counts[size]

    def draw(self, generator: np.random.Generator, size: int) -> BoolArray:
        """Return (n,): a uniformly random coalition of ``size``."""
        self.count(size)
        row = random_coalition(generator, self.n, size)
        while row not in self:
            row = random_coalition(generator, self.n, size)
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
        orders = np.argsort(generator.random((count - 1, self.n)), axis=1, kind="stable")
        others = np.zeros((count - 1, self.n), dtype=np.bool_)
        np.put_along_axis(others, orders[:, :size], True, axis=1)
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


def draw_sizes(
    name: str, seed: int, n: int, sizes: Sequence[int], start: int, exclude: Iterable[ArrayLike]
) -> BoolArray:
    """Return (len(sizes) − start, n): one coalition per size without replacement, without the first ``start``.

    Rows before ``start`` are drawn too, since they must not come again.
    """
    urn = Urn(n, exclude)
    rows = [urn.draw(stream(name, seed, n, index), size) for index, size in enumerate(sizes)]
    return stack(rows[start:], n)


def with_complements(exclude: Iterable[ArrayLike]) -> Iterator[BoolArray]:
    """Yield each excluded coalition and its complement: what the first row of a pair must not be."""
    for vector in exclude:
        row = np.asarray(vector, dtype=np.bool_)
        yield row
        yield ~row


def paired(firsts: BoolArray) -> BoolArray:
    """Return (2m, n): each of the (m, n) rows, followed by its complement."""
    return np.stack([firsts, ~firsts], axis=1).reshape(-1, firsts.shape[1])
