"""What a design is, and the checks all designs share."""

import operator
from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray


class Design(Protocol):
    """A sequence of coalitions that follows from a seed alone.

    Row j depends on the seed, n and ``exclude``, never on how the sequence is cut into draws:
    ``draw(n, 0, 100)[40:]`` equals ``draw(n, 40, 60)``. A finite design raises a UserError beyond its end.
    """

    @property
    def seed(self) -> int: ...

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        """Rows start … start + count − 1 as (count, n) booleans, none of them in ``exclude``."""
        ...

    def size_probabilities(self, n: int) -> NDArray[np.float64]:
        """(n−1,): the probability that a coalition has size 1, …, n−1."""
        ...


def as_integer(name: str, number: int) -> int:
    """``number`` as Python's integer, whatever its width."""
    try:
        return int(operator.index(number))
    except TypeError:
        raise UserError(f"{name}: {number!r}; an integer is expected") from None


def check_contributors(n: int) -> None:
    if as_integer("contributors", n) < 2:
        raise UserError(f"contributors: {n}; a coalition game needs at least 2")


def check_request(n: int, start: int, count: int) -> None:
    check_contributors(n)
    as_integer("start", start)
    as_integer("count", count)
    if start < 0 or count < 0:
        raise UserError(f"coalitions {start} to {start + count}: start and count must not be negative")
