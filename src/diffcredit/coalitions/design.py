"""What a design is, and what all designs share: checks, exclusion, one random stream a row."""

from collections.abc import Iterable, Mapping
from math import comb
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.errors import UserError
from diffcredit.seeds import derive_seed

BoolArray = NDArray[np.bool_]


class Design(Protocol):
    """A sequence of coalitions that follows from a seed alone.

    Row j depends on the seed, n and ``exclude``, never on how the sequence is cut into draws:
    ``draw(n, 0, 100)[40:]`` equals ``draw(n, 40, 60)``.
    """

    @property
    def seed(self) -> int: ...

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        """Rows start … start + count − 1 as (count, n) booleans, none of them in ``exclude``."""
        ...

    @staticmethod
    def size_probabilities(n: int) -> NDArray[np.float64]:
        """(n−1,): the probability that a coalition has size 1, …, n−1."""
        ...


def check_contributors(n: int) -> None:
    if n < 2:
        raise UserError(f"contributors: {n}; a coalition game needs at least 2")


def check_request(n: int, start: int, count: int) -> None:
    check_contributors(n)
    if start < 0 or count < 0:
        raise UserError(f"coalitions {start} to {start + count}: start and count must not be negative")


def excluded_by_size(n: int, exclude: Iterable[ArrayLike]) -> dict[int, set[bytes]]:
    """The excluded coalitions' keys, by size."""
    excluded: dict[int, set[bytes]] = {}
    for vector in exclude:
        row = np.asarray(vector, dtype=np.bool_)
        if row.shape != (n,):
            raise UserError(f"exclude: a coalition of shape {row.shape}; expected ({n},)")
        excluded.setdefault(int(row.sum()), set()).add(row.tobytes())
    return excluded


def count_available(n: int, size: int, excluded: Mapping[int, set[bytes]]) -> int:
    """How many coalitions of ``size`` are not excluded; none is an error."""
    available = comb(n, size) - len(excluded.get(size, ()))
    if available == 0:
        raise UserError(f"exclude: every coalition of size {size} of {n} contributors; leave at least one")
    return available


def row_generator(name: str, seed: int, n: int, index: int) -> np.random.Generator:
    """One stream a row, so that redrawing one row leaves all others as they are."""
    return np.random.Generator(np.random.PCG64(derive_seed("coalitions", name, seed, n, index)))


def random_coalition(generator: np.random.Generator, n: int, size: int) -> BoolArray:
    """(n,): a uniformly random coalition of ``size`` members."""
    # Sorting uniforms uses only the most stable part of numpy's random stream, unlike choice or permutation.
    row = np.zeros(n, dtype=np.bool_)
    row[np.argsort(generator.random(n), kind="stable")[:size]] = True
    return row
