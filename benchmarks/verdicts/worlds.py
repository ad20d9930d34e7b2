"""Simulated studies: evaluations, replicates of everybody's model and a validation, from games that are known."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diffcredit import estimate, make_design
from diffcredit.credit import Credits, Tested
from diffcredit.validation.statistics import Contender, Truth, compare_lds

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

NOISES = ("even", "small coalitions noisier", "large coalitions noisier", "heavy tails")


@dataclass(frozen=True)
class World:
    """A kind of study. F(S) is a concave function of the size, plus members' effects, pairs' effects and noise.

    The noise of one training of everybody's model has a deviation of 1. ``difference``: the deviation of the
    contributors' effects. ``pairs``: the deviation, over coalitions of half, of what additive credits miss.
    ``outliers``: the part of evaluations that are wrong by 10. ``truthful``: the factor of the effects in models
    retrained from scratch; 1 where the study's retraining is right, 0 or −1 where it misleads.
    """

    contributors: int
    per_contributor: int
    truths: int = 40
    difference: float = 0.0
    noise: str = "even"
    pairs: float = 0.0
    outliers: float = 0.0
    truthful: float = 1.0
    seeds: int = 2
    replicates: int = 3
    design: str = "uniform"


@dataclass(frozen=True, eq=False)
class Simulated:
    """One study: its credits, what its validation found, and the true help (n,) of its contributors."""

    credits: Credits
    tested: Tested
    help: FloatArray


def simulate(world: World, number: int) -> Simulated:
    """Return the ``number``-th study of a kind."""
    n, generator = world.contributors, np.random.default_rng([number, world.contributors, world.per_contributor])
    effects = generator.standard_normal(n)
    effects = world.difference * (effects - effects.mean()) / effects.std(ddof=1)
    pairs = world.pairs * np.triu(generator.standard_normal((n, n)), 1) * (8 / (n * (n - 1))) ** 0.5

    def measured(coalitions: BoolArray, factor: float = 1.0) -> FloatArray:
        x, sizes = coalitions.astype(np.float64), coalitions.sum(axis=1)
        interactions = (((x - 0.5) @ pairs) * (x - 0.5)).sum(axis=1)
        return 20 * sizes / (sizes + n / 4) + factor * (x @ effects) + interactions + noise(sizes)

    def noise(sizes: NDArray[np.intp]) -> FloatArray:
        if world.noise == "heavy tails":
            return generator.standard_t(3, len(sizes)) / 3**0.5
        exponent = {"small coalitions noisier": -0.5, "large coalitions noisier": 0.5}.get(world.noise, 0.0)
        return (sizes / n) ** exponent * generator.standard_normal(len(sizes))

    count = 2**n - 2 if world.design == "exhaustive" else world.per_contributor * n
    coalitions = make_design(world.design, number).draw(n, 0, count)
    values = measured(coalitions)
    values += 10 * (generator.random(len(values)) < world.outliers)
    full = measured(np.ones((world.replicates, n), dtype=np.bool_))
    credits = estimate(coalitions, values, empty=0.0, full=full.tolist(), size_distribution=world.design)
    held_out = make_design("subset(0.5)", number + 1).draw(n, 0, world.truths)
    truth = Truth(0.5, held_out, np.stack([measured(held_out, world.truthful) for _ in range(world.seeds)], axis=1))
    return Simulated(credits, compare_lds([truth], [Contender("study", "", "", credits.values)]).tested(), effects)
