"""Coalition games with known answers: callables from (m, n) booleans to (m,) values."""

from collections.abc import Callable, Iterator, Sequence
from math import comb

import numpy as np
from numpy.typing import NDArray

from diffcredit.util.arrays import BoolArray, FloatArray

Game = Callable[[BoolArray], FloatArray]


def additive(weights: Sequence[float], offset: float = 0.0) -> Game:
    """F(S) = offset + Σ_{i∈S} w_i. Shapley values: w."""
    w = np.asarray(weights, dtype=np.float64)
    return lambda coalitions: offset + coalitions @ w


def unanimity(members: Sequence[int], value: float = 1.0) -> Game:
    """F(S) = value if S contains all ``members``, else 0. Shapley values: value / |members| each."""
    carrier = list(members)
    return lambda coalitions: np.where(coalitions[:, carrier].all(axis=1), value, 0.0)


def airport(costs: Sequence[float]) -> Game:
    """F(S) = max_{i∈S} c_i. Shapley values: all who need a step of the sorted costs share it (Littlechild & Owen)."""
    c = np.asarray(costs, dtype=np.float64)
    return lambda coalitions: np.where(coalitions, c, 0.0).max(axis=1)


def weighted_voting(weights: Sequence[float], quota: float) -> Game:
    """F(S) = 1 if the members' weights reach the quota, else 0."""
    w = np.asarray(weights, dtype=np.float64)
    return lambda coalitions: (coalitions @ w >= quota).astype(np.float64)


def random_game(n: int, seed: int = 0) -> Game:
    """Return a game with an independent standard normal value for each of the 2ⁿ coalitions (n ≤ 20)."""
    table = np.random.Generator(np.random.PCG64(seed)).standard_normal(2**n)
    return lambda coalitions: table[coalitions @ (1 << np.arange(n))]


def learning(n: int, seed: int = 0) -> Game:
    """Return a game that resembles learning: more data helps less and less, and the quality of the data counts.

    Contributors bring amounts a_i (log-normal) of data of quality q_i (normal, mean 1). With A = Σ_{i∈S} a_i
    and the mean quality q̄ = Σ_{i∈S} a_i q_i / A: F(S) = q̄ · A / (A + ¼ Σ_i a_i), 0 for nobody.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    amounts = np.exp(0.5 * generator.standard_normal(n))
    qualities = 1 + 0.5 * generator.standard_normal(n)
    half = amounts.sum() / 4  # the amount of data that reaches half of the quality
    return lambda coalitions: coalitions @ (amounts * qualities) / (coalitions @ amounts + half)


def noisy(game: Game, deviation: float, seed: int = 0) -> Game:
    """Return the game with independent normal noise on every value, drawn again on every call."""
    generator = np.random.Generator(np.random.PCG64(seed))
    return lambda coalitions: game(coalitions) + deviation * generator.standard_normal(len(coalitions))


def all_coalitions(n: int) -> BoolArray:
    """Return (2ⁿ, n): every coalition, from the empty to the full one; row c holds the bits of c."""
    return (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.bool_)


def brute_force_shapley(game: Game, n: int) -> FloatArray:
    """Return (n,): φ_i = Σ_{S∌i} |S|! (n−|S|−1)! / n! · (F(S∪{i}) − F(S)), over all 2ⁿ coalitions."""
    weights = np.array([1 / (n * comb(n - 1, size)) for size in range(n)])
    return np.array([weights[sizes] @ marginal for sizes, marginal in _marginals(game, n)])


def brute_force_banzhaf(game: Game, n: int) -> FloatArray:
    """Return (n,): β_i = 2^(1−n) Σ_{S∌i} (F(S∪{i}) − F(S)), over all 2ⁿ coalitions."""
    return np.array([marginal.mean() for _, marginal in _marginals(game, n)])


def _marginals(game: Game, n: int) -> Iterator[tuple[NDArray[np.intp], FloatArray]]:
    """Yield, for each contributor i, the sizes of all coalitions without i and what i adds to each."""
    coalitions = all_coalitions(n)
    values, codes = game(coalitions), np.arange(2**n)
    for i in range(n):
        without = codes[~coalitions[:, i]]
        yield coalitions[without].sum(axis=1), values[without | (1 << i)] - values[without]
