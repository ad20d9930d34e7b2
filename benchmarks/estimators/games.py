"""Three simulated games, shaped like the paper's three studies, with answers that are known.

``inception`` (n = 20): contributors bring classes that blur into each other; the value is the Inception Score of
the mixture. ``entropy`` (n = 50): contributors bring faces of 20 clusters; the value is the entropy of the
mixture. ``percentile`` (n = 258): contributors bring images of different appeal; the value is the mixture's 90th
percentile. A model keeps something of everybody ("leak"), since it is fine-tuned and not trained anew. Noise is
larger for small coalitions, and of a size for which the paper's estimator reaches about the paper's LDS.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from diffcredit.testing.games import brute_force_shapley

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
Game = Callable[[BoolArray], FloatArray]


@dataclass(frozen=True)
class Setting:
    """A game's maker, its number of contributors, the noise's deviation at half-size coalitions (about), and
    the number of evaluations that the paper spent on its like."""

    make: Callable[[int, np.random.Generator], Game]
    n: int
    deviation: float
    evaluations: int


@dataclass(frozen=True, eq=False)
class World:
    """One game drawn from a setting, and the Shapley values of its mean."""

    n: int
    game: Game
    deviation: float
    evaluations: int
    truth: FloatArray

    def evaluate(self, coalitions: BoolArray, generator: np.random.Generator) -> FloatArray:
        """(m,): F of each row with fresh noise, of variance ¾ + n/(8 s) (at most 2.5) times deviation²."""
        sizes = np.maximum(coalitions.sum(axis=1), 1)
        spread = np.sqrt(np.minimum(0.75 + 0.125 * self.n / sizes, 2.5))
        return self.game(coalitions) + self.deviation * spread * generator.standard_normal(len(coalitions))


def inception(n: int, generator: np.random.Generator) -> Game:
    """exp(H(mixture) − mean H(class)): n classes in groups of five, each blurred into its group."""
    amounts = _amounts(n, 0.5, generator)
    group, blur = np.arange(n) % max(2, n // 5), generator.uniform(0.05, 0.7, n)
    seen = 0.15 * blur[:, None] / n * np.ones((n, n))
    for i in range(n):
        mates = np.flatnonzero(group == group[i])
        seen[i, mates] += blur[i] * generator.dirichlet(np.ones(len(mates)))
        seen[i, i] += max(1 - 1.15 * blur[i], 0.05)
    seen /= seen.sum(axis=1, keepdims=True)
    confusion = _entropy(seen)

    def value(coalitions: BoolArray) -> FloatArray:
        part = coalitions.mean(axis=1)
        mixture = _leaky_mixture(coalitions, amounts, 0.10)
        return np.exp(_entropy(mixture @ seen) - mixture @ confusion) * (1 - 0.25 * np.exp(-6 * part))

    return value


def entropy(n: int, generator: np.random.Generator) -> Game:
    """H(mixture) over 20 clusters, some of them common and some rare."""
    clusters = 20
    amounts = _amounts(n, 0.5, generator)
    common = 1 / np.arange(1, clusters + 1)
    main = generator.choice(clusters, n, p=common / common.sum())
    seen = 0.35 * generator.dirichlet(np.full(clusters, 0.3), n)
    seen[np.arange(n), main] += 0.65
    return lambda coalitions: _entropy(_leaky_mixture(coalitions, amounts, 0.15) @ seen)


def percentile(n: int, generator: np.random.Generator) -> Game:
    """The 90th percentile of a mixture of normal distributions of appeal, the base model's among them."""
    edges = np.linspace(-4, 6, 81)
    mean, spread = generator.normal(0, 0.8, n), generator.uniform(0.5, 1.0, n)
    seen = np.diff(norm.cdf((edges - mean[:, None]) / spread[:, None]), axis=1)
    seen /= seen.sum(axis=1, keepdims=True)
    base = np.diff(norm.cdf(edges + 0.2))
    base /= base.sum()
    amounts, leak = _amounts(n, 0.8, generator), 2.0

    def value(coalitions: BoolArray) -> FloatArray:
        weights = coalitions * amounts
        mixture = (weights @ seen + leak * base) / (weights.sum(axis=1, keepdims=True) + leak)
        cumulative = np.cumsum(mixture, axis=1)
        rows, bins = np.arange(len(mixture)), (cumulative < 0.9).sum(axis=1)
        below = np.where(bins > 0, cumulative[rows, np.maximum(bins - 1, 0)], 0.0)
        return edges[bins] + (0.9 - below) / mixture[rows, bins] * (edges[1] - edges[0])

    return value


SETTINGS = {
    "inception": Setting(inception, 20, 0.290, 500),
    "entropy": Setting(entropy, 50, 0.103, 500),
    "percentile": Setting(percentile, 258, 0.0090, 1000),
}


def make_world(name: str, seed: int) -> World:
    setting = SETTINGS[name]
    generator = np.random.default_rng([seed, *name.encode()])
    game = _in_pieces(setting.make(setting.n, generator))
    return World(setting.n, game, setting.deviation, setting.evaluations, shapley_values(game, setting.n, generator))


def shapley_values(game: Game, n: int, generator: np.random.Generator, pairs: int = 200_000) -> FloatArray:
    """(n,): exact up to n = 20; else by noise-free least squares on Shapley-kernel coalitions and their
    complements, each size's mean taken out."""
    if n <= 20:
        return brute_force_shapley(game, n)
    sizes = np.arange(1, n)
    kernel = 1 / (sizes * (n - sizes))
    drawn = generator.choice(sizes, pairs, p=kernel / kernel.sum())
    gram, moment = np.zeros((n, n)), np.zeros(n)
    for part in np.array_split(drawn, max(1, pairs // 5000)):
        half = generator.random((len(part), n)).argsort(axis=1).argsort(axis=1) < part[:, None]
        coalitions = np.concatenate([half, ~half])
        values, size = game(coalitions), coalitions.sum(axis=1)
        means = np.bincount(size, values, n + 1) / np.maximum(np.bincount(size, minlength=n + 1), 1)
        x = coalitions - size[:, None] / n
        gram += x.T @ x
        moment += x.T @ (values - means[size])
    slopes = np.linalg.lstsq(gram, moment, rcond=1e-10)[0]
    ends = game(np.array([[False] * n, [True] * n]))
    return slopes - slopes.mean() + (ends[1] - ends[0]) / n


def _amounts(n: int, spread: float, generator: np.random.Generator) -> FloatArray:
    amounts = generator.lognormal(0, spread, n)
    return amounts / amounts.sum()


def _leaky_mixture(coalitions: BoolArray, amounts: FloatArray, leak: float) -> FloatArray:
    """(m, n): the parts of everybody's data in a model, non-members with ``leak`` of theirs."""
    part = coalitions.mean(axis=1, keepdims=True)
    weights = coalitions * amounts + leak * amounts * (1 - 0.5 * part)
    return weights / weights.sum(axis=1, keepdims=True)


def _entropy(p: FloatArray) -> FloatArray:
    return -(p * np.log(p + 1e-12)).sum(axis=-1)


def _in_pieces(game: Game, rows: int = 50_000) -> Game:
    """The same game without arrays of all 2ⁿ coalitions at once."""
    return lambda coalitions: np.concatenate(
        [game(coalitions[start : start + rows]) for start in range(0, len(coalitions), rows)]
    )
