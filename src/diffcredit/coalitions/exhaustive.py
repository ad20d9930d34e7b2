"""Every coalition once, for games small enough."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.coalitions.design import BoolArray, check_contributors, check_request, excluded_by_size
from diffcredit.errors import UserError
from diffcredit.seeds import derive_seed

LARGEST = 16


@dataclass(frozen=True)
class Exhaustive:
    """All 2ⁿ − 2 coalitions but the empty and the full one, in random order; n ≤ 16."""

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> NDArray[np.float64]:
        _check_small(n)
        return np.array([comb(n, size) for size in range(1, n)]) / (2**n - 2)

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        _check_small(n)
        check_request(n, start, count)
        generator = np.random.Generator(np.random.PCG64(derive_seed("coalitions", "exhaustive", self.seed, n)))
        codes = 1 + np.argsort(generator.random(2**n - 2), kind="stable")
        rows = (codes[:, None] >> np.arange(n) & 1).astype(np.bool_)
        excluded = set[bytes]().union(*excluded_by_size(n, exclude).values())
        if excluded:
            rows = rows[[row.tobytes() not in excluded for row in rows]]
        if start + count > len(rows):
            raise UserError(
                f"coalitions {start} to {start + count}: the exhaustive design of {n} contributors has {len(rows)}"
            )
        return rows[start : start + count]


def _check_small(n: int) -> None:
    check_contributors(n)
    if n > LARGEST:
        raise UserError(f"exhaustive design: {n} contributors; at most {LARGEST} (2^{LARGEST} coalitions)")
