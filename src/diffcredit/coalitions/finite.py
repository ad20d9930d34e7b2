"""Designs with finitely many coalitions, each once in random order: exhaustive, leave-one-out, add-one-in."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.coalitions.design import check_request
from diffcredit.coalitions.members import Allowed, random_order, stream
from diffcredit.coalitions.sizes import coin_sizes, one_size
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray

LARGEST = 16


@dataclass(frozen=True)
class Exhaustive:
    """All 2ⁿ − 2 coalitions except the empty and the full one, for n ≤ 16."""

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> FloatArray:
        _check_small(n)
        return coin_sizes(n)

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        _check_small(n)
        codes = np.arange(1, 2**n - 1)
        coalitions = (codes[:, None] >> np.arange(n) & 1).astype(np.bool_)
        return draw_finite("exhaustive", self.seed, coalitions, start, count, exclude)


@dataclass(frozen=True)
class LeaveOneOut:
    """The n coalitions N∖{i}: all contributors but one."""

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> FloatArray:
        return one_size(n, n - 1)

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        return draw_finite("leave-one-out", self.seed, ~np.eye(n, dtype=np.bool_), start, count, exclude)


@dataclass(frozen=True)
class AddOneIn:
    """The n coalitions {i}: each contributor alone."""

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> FloatArray:
        return one_size(n, 1)

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        return draw_finite("add-one-in", self.seed, np.eye(n, dtype=np.bool_), start, count, exclude)


def draw_finite(
    name: str, seed: int, coalitions: BoolArray, start: int, count: int, exclude: Iterable[ArrayLike]
) -> BoolArray:
    """Return rows ``start`` … of ``coalitions`` (m, n), shuffled and without the excluded ones."""
    total, n = coalitions.shape
    allowed = Allowed(n, exclude)
    shuffled = coalitions[random_order(stream(name, seed, n), total)]
    rows = shuffled[np.array([row in allowed for row in shuffled])]
    if start + count > len(rows):
        raise UserError(f"coalitions {start} to {start + count}: the {name} design of {n} contributors has {len(rows)}")
    return rows[start : start + count]


def _check_small(n: int) -> None:
    if n > LARGEST:
        raise UserError(f"exhaustive design: {n} contributors; at most {LARGEST} (2^{LARGEST} coalitions)")
