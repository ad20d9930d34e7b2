"""Designs of finitely many coalitions: each once, in random order, and then no more."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.coalitions.members import Allowed, random_order, stream
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray


def draw_finite(
    name: str, seed: int, coalitions: BoolArray, start: int, count: int, exclude: Iterable[ArrayLike]
) -> BoolArray:
    """(count, n): rows ``start`` … of ``coalitions`` (m, n), shuffled and without the excluded ones."""
    total, n = coalitions.shape
    allowed = Allowed(n, exclude)
    shuffled = coalitions[random_order(stream(name, seed, n), total)]
    rows = shuffled[np.array([row in allowed for row in shuffled])]
    if start + count > len(rows):
        raise UserError(f"coalitions {start} to {start + count}: the {name} design of {n} contributors has {len(rows)}")
    return rows[start : start + count]
