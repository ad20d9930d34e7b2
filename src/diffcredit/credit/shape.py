"""How effects and noise change with the size of a coalition, and how replicates of one coalition agree.

A model fine-tuned on a coalition follows the *average* of its members' images, so one contributor among s
moves it by about 1/s: the slopes of F on membership fall with the size. And a model fine-tuned on few images
varies more from seed to seed. A regression with one slope and one noise for all sizes takes the one for the
other, or both for noise. Here slopes are β_i·s^−γ and the noise's variance is σ²·s^−δ, each with mean 1 over the
sizes 1..n−1, so that β_i is still the mean of the within-size slopes: the contrast of the Shapley value.

What the regression misses of F(S) itself is the same in all replicates of S: a part ω of the variance of one
evaluation. The mean of r replicates has variance σ²s^−δ·(ω + (1 − ω)/r), and more replicates of one coalition
are worth less than more coalitions. Where all coalitions of a size are in the table, what the regression misses
there is no error any more: nothing was left to chance but the noise.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb

from diffcredit.credit.table import Table
from diffcredit.util.arrays import FloatArray

IntArray = NDArray[np.intp]

STEPS = (0.5, 0.25)
LIMITS = {"slope": (-1.0, 2.0), "noise": (-1.0, 3.0), "misfit": (0.0, 0.99)}


@dataclass(frozen=True)
class Shape:
    """slope γ, noise δ, misfit ω."""

    slope: float = 0.0
    noise: float = 0.0
    misfit: float = 0.0

    def modulation(self, sizes: IntArray, n: int) -> FloatArray:
        """(m,): s^−γ over its mean; 1 where γ = 0."""
        return _power(sizes, n, -self.slope)

    def size_variance(self, sizes: IntArray, n: int) -> FloatArray:
        """(m,): s^−δ over its mean, the variance of one evaluation in units of σ²."""
        return _power(sizes, n, -self.noise)

    def variance(self, table: Table) -> FloatArray:
        """(m,): the variance of each coalition's mean value, in units of σ²."""
        shared = self.misfit + (1 - self.misfit) / table.replicates
        return self.size_variance(table.sizes, table.n) * shared

    def left_to_chance(self, table: Table) -> FloatArray:
        """(m,): the part of `variance` that is an error of sampling, 1 − f·ω/(ω + (1 − ω)/r), where f is the
        part of all coalitions of the size that the table has."""
        seen = np.bincount(table.sizes, minlength=table.n) / comb(table.n, np.arange(table.n))
        return 1 - seen[table.sizes] * self.misfit / (self.misfit + (1 - self.misfit) / table.replicates)

    @property
    def penalty(self) -> float:
        """γ² + δ², −2 log of normal priors of deviation 1: values that say nothing leave all sizes alike."""
        return self.slope**2 + self.noise**2


def likeliest_shape(deviance: Callable[[Shape], float], start: Shape, with_misfit: bool) -> Shape:
    """The minimum of a deviance by steps along one coordinate at a time, first long ones and then short.

    The deviance is smooth with one minimum in practice; steps shorter than ¼ would change no credit by a tenth of
    its error.
    """
    known: dict[Shape, float] = {}

    def value(shape: Shape) -> float:
        if shape not in known:
            known[shape] = deviance(shape) + shape.penalty
        return known[shape]

    coordinates = ("slope", "noise", "misfit") if with_misfit else ("slope", "noise")
    best = start
    for step in STEPS:
        while True:
            around = [
                replace(best, **{name: float(np.clip(getattr(best, name) + sign * step, *LIMITS[name]))})
                for name in coordinates
                for sign in (-1, 1)
            ]
            better = min(around, key=value)
            if value(better) >= value(best):
                break
            best = better
    return best


def _power(sizes: IntArray, n: int, exponent: float) -> FloatArray:
    return sizes ** float(exponent) / np.mean(np.arange(1, n) ** float(exponent))
