"""How slopes and noise change with the size of a coalition, and how replicates of one coalition agree.

A model fine-tuned on a coalition follows the average of its members' images, so one contributor among s changes it by
about 1/s: the slopes of F on membership fall with the size. A model fine-tuned on few images also varies more from seed
to seed. A regression with one slope and one noise for all sizes would confuse the two. Here slopes are β_i·s^−γ and the
noise's variance is σ²·s^−δ, each scaled to mean 1 over the sizes 1..n−1, so that β_i remains the mean of the
within-size slopes: the contrast of the Shapley value.

What the regression misses of F(S) is the same in all replicates of S: a share ω of the variance of one evaluation. The
mean of r replicates has variance σ²s^−δ·(ω + (1 − ω)/r), so more replicates of one coalition are worth less than more
coalitions. If all coalitions of a size are in the table, what the regression misses there is not a sampling error.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb

from diffcredit.credit.table import GameTable
from diffcredit.util.arrays import FloatArray

IntArray = NDArray[np.intp]

STEPS = (0.5, 0.25)
LIMITS = {"slope": (-1.0, 2.0), "noise": (-1.0, 3.0), "misfit": (0.0, 0.99)}


@dataclass(frozen=True)
class SizeModel:
    """The exponents of the slope, γ, and of the noise, δ, and the misfit ω."""

    slope: float = 0.0
    noise: float = 0.0
    misfit: float = 0.0

    def modulation(self, sizes: IntArray, n: int) -> FloatArray:
        """Return (m,): s^−γ over its mean; 1 if γ = 0."""
        return _power(sizes, n, -self.slope)

    def size_variance(self, sizes: IntArray, n: int) -> FloatArray:
        """Return (m,): s^−δ over its mean, the variance of one evaluation in units of σ²."""
        return _power(sizes, n, -self.noise)

    def variance(self, table: GameTable) -> FloatArray:
        """Return (m,): the variance of each coalition's mean value, in units of σ²."""
        shared = self.misfit + (1 - self.misfit) / table.replicates
        return self.size_variance(table.sizes, table.n) * shared

    def sampling_share(self, table: GameTable) -> FloatArray:
        """Return (m,): the share of `variance` that is sampling error, 1 − f·ω/(ω + (1 − ω)/r).

        f is the fraction of all coalitions of that size that the table has.
        """
        seen = np.bincount(table.sizes, minlength=table.n) / comb(table.n, np.arange(table.n))
        return 1 - seen[table.sizes] * self.misfit / (self.misfit + (1 - self.misfit) / table.replicates)

    @property
    def penalty(self) -> float:
        """γ² + δ², −2 log of standard normal priors, which keep both at 0 if the values say nothing about them."""
        return self.slope**2 + self.noise**2


def fit_size_model(deviance: Callable[[SizeModel], float], start: SizeModel, with_misfit: bool) -> SizeModel:
    """Minimise a deviance by coordinate steps, long ones first and then short.

    The deviance is smooth with one minimum in practice. Steps shorter than ¼ would change no credit by a tenth of its
    error.
    """
    known: dict[SizeModel, float] = {}

    def value(size_model: SizeModel) -> float:
        if size_model not in known:
            known[size_model] = deviance(size_model) + size_model.penalty
        return known[size_model]

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
