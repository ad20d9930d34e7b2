"""All games of the benchmark behind one face: three simulated, one learnt for real in two sizes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.estimators import games
from benchmarks.estimators.digits import DigitsGame, truth
from diffcredit.testing.games import BoolArray, FloatArray

DIGITS_WORLDS = 4


@dataclass(frozen=True, eq=False)
class World:
    """n contributors, their true credits (n,), the usual number of evaluations, and ``evaluate(coalitions,
    generator)``, which trains or draws anew on every call."""

    n: int
    truth: FloatArray
    evaluations: int
    evaluate: Callable[[BoolArray, np.random.Generator], FloatArray]

    def endpoints(self, generator: np.random.Generator, replicates: int = 3) -> tuple[FloatArray, FloatArray]:
        """F(∅) and F(N), each evaluated so often."""
        empty = np.zeros((replicates, self.n), dtype=np.bool_)
        return self.evaluate(empty, generator), self.evaluate(~empty, generator)


def _simulated(name: str, seed: int) -> World:
    world = games.make_world(name, seed)
    return World(world.n, world.truth, world.evaluations, world.evaluate)


def _digits(n: int, evaluations: int, seed: int) -> World:
    """Worlds repeat after ``DIGITS_WORLDS`` seeds, with other coalitions and other training seeds."""
    game = DigitsGame(n, seed % DIGITS_WORLDS)

    def evaluate(coalitions: BoolArray, generator: np.random.Generator) -> FloatArray:
        seeds: NDArray[np.intp] = generator.integers(2**31, size=len(coalitions))
        return game.evaluate(coalitions, seeds)

    return World(n, truth(n, seed % DIGITS_WORLDS).credits, evaluations, evaluate)


WORLDS: dict[str, Callable[[int], World]] = {
    "inception": lambda seed: _simulated("inception", seed),
    "entropy": lambda seed: _simulated("entropy", seed),
    "percentile": lambda seed: _simulated("percentile", seed),
    "digits-20": lambda seed: _digits(20, 300, seed),
    "digits-50": lambda seed: _digits(50, 500, seed),
}
