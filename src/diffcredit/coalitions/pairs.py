"""Complement pairs: rows 2j and 2j+1 are each other's complements."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.util.arrays import BoolArray


def with_complements(exclude: Iterable[ArrayLike]) -> Iterator[BoolArray]:
    """What a first row must not be: excluded, or the complement of an excluded coalition."""
    for vector in exclude:
        row = np.asarray(vector, dtype=np.bool_)
        yield row
        yield ~row


def paired(firsts: BoolArray) -> BoolArray:
    """(2m, n): each of the (m, n) rows, followed by its complement."""
    return np.stack([firsts, ~firsts], axis=1).reshape(-1, firsts.shape[1])
