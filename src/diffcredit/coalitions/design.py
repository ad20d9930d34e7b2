"""The protocol of designs, and the checks all designs share.

Your own design needs a seed and two methods:

>>> import numpy as np
>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Singles:
...     "Each contributor alone, again and again."
...     seed: int = 0
...
...     def draw(self, n, start, count, exclude=()):
...         out = {int(np.argmax(row)) for row in exclude}
...         left = [i for i in range(n) if i not in out]
...         return np.eye(n, dtype=bool)[[left[j % len(left)] for j in range(start, start + count)]]
...
...     def size_probabilities(self, n):
...         return (np.arange(1, n) == 1).astype(float)
>>> from diffcredit.testing import check_design
>>> check_design(Singles())
"""

import operator
from collections.abc import Iterable
from typing import Protocol

from numpy.typing import ArrayLike

from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray


class Design(Protocol):
    """A sequence of coalitions that is determined by a seed.

    Row j depends on the seed, n and ``exclude``, never on how the sequence is cut into draws: ``draw(n, 0, 100)[40:]``
    equals ``draw(n, 40, 60)``. A finite design raises a UserError beyond its end. Safe to call from several threads.
    """

    @property
    def seed(self) -> int: ...

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        """Return rows start … start + count − 1 as (count, n) booleans, none of them in ``exclude``."""
        ...

    def size_probabilities(self, n: int) -> FloatArray:
        """Return (n−1,): the probability that a coalition has size 1, …, n−1."""
        ...


def as_integer(name: str, number: int) -> int:
    """Return ``number`` as a Python integer, whatever its width. Raise UserError if it is none."""
    try:
        return int(operator.index(number))
    except TypeError:
        raise UserError(f"{name}: {number!r}; expected an integer") from None


def check_contributors(n: int) -> None:
    if as_integer("contributors", n) < 2:
        raise UserError(f"contributors: {n}; a coalition game needs at least 2")


def check_request(n: int, start: int, count: int) -> None:
    check_contributors(n)
    as_integer("start", start)
    as_integer("count", count)
    if start < 0 or count < 0:
        raise UserError(f"coalitions {start} to {start + count}: start and count must not be negative")
