"""Games of which everything is known: additive, pairwise and noise, each of a given variance."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PairwiseGame:
    """F(S) of coalitions of half of the n contributors, of variance 1: ``additive`` of it is Σ_{i∈S} β_i, the rest
    comes of pairs and is unrelated to any additive model."""

    slopes: FloatArray
    pairs: FloatArray
    constant: float

    @property
    def n(self) -> int:
        return len(self.slopes)

    def values(self, coalitions: BoolArray) -> FloatArray:
        x = coalitions.astype(np.float64)
        return self.constant + x @ self.slopes + ((x @ self.pairs) * x).sum(axis=1)


def coalitions_of_half(n: int, count: int, generator: np.random.Generator) -> BoolArray:
    """(count, n)"""
    return np.argsort(np.argsort(generator.random((count, n)), axis=1), axis=1) < n // 2


def pairwise_game(n: int, additive: float, generator: np.random.Generator) -> tuple[PairwiseGame, FloatArray]:
    """A game, and the credits (n,) of its best additive model."""
    x = coalitions_of_half(n, 20_000, generator).astype(np.float64)
    slopes, pairs = generator.standard_normal(n), np.triu(generator.standard_normal((n, n)), 1)
    raw = ((x @ pairs) * x).sum(axis=1)
    design = np.column_stack([np.ones(len(x)), x])
    fit = np.linalg.lstsq(design, raw, rcond=None)[0]
    unexplained = (raw - design @ fit).std() / (1 - additive) ** 0.5
    slopes = slopes * (additive**0.5 / (x @ slopes).std())
    return PairwiseGame(slopes - fit[1:] / unexplained, pairs / unexplained, -fit[0] / unexplained), slopes
