"""Every coalition once, for games small enough."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.coalitions.design import check_request
from diffcredit.coalitions.finite import draw_finite
from diffcredit.coalitions.sizes import coin_sizes
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray

LARGEST = 16


@dataclass(frozen=True)
class Exhaustive:
    """All 2ⁿ − 2 coalitions but the empty and the full one, in random order; n ≤ 16."""

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> NDArray[np.float64]:
        _check_small(n)
        return coin_sizes(n)

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        _check_small(n)
        codes = np.arange(1, 2**n - 1)
        coalitions = (codes[:, None] >> np.arange(n) & 1).astype(np.bool_)
        return draw_finite("exhaustive", self.seed, coalitions, start, count, exclude)


def _check_small(n: int) -> None:
    if n > LARGEST:
        raise UserError(f"exhaustive design: {n} contributors; at most {LARGEST} (2^{LARGEST} coalitions)")
