"""How sure each amount is: intervals of what the exact credits would pay, and what another run would move.

Credits are drawn jointly, as estimate + error, with the errors' covariance influence · influenceᵀ and their bias. Each
draw is paid by the same policy, with the same part r that follows merit and the same contributors cut off. The interval
of an amount holds the middle of the draws, at the credits' confidence, and always the amount itself.
"""

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from scipy.special import stdtr, stdtrit

from diffcredit.credit import Credits
from diffcredit.credit.intervals import half_width
from diffcredit.payout.merit import Contributors, amounts, merit
from diffcredit.study.policy import PolicySection
from diffcredit.util.arrays import BoolArray, FloatArray

DRAWS = 2000  # a bound's coverage is then known to half a per cent
UNITS = 1024  # sampling units whose normal numbers are held at once


@dataclass(frozen=True, eq=False)
class Certainty:
    """How sure a payout is, by contributor (n,).

    ``low`` to ``high`` is where the amount by the exact credits lies, at the credits' confidence, with the same policy,
    r and contributors cut off. ``overtaken`` is the probability that the next contributor in rank in truth helps more;
    NaN for the last. ``moved`` is the amount that on average would go to somebody else if all evaluations were made
    again, with other seeds; if the noise is not known, as much as could.
    """

    low: FloatArray
    high: FloatArray
    overtaken: FloatArray
    moved: float


@dataclass(frozen=True, eq=False)
class Paying:
    """All that turns credits into amounts, but the credits: by the contributors ``kept``, who are not cut off.

    Merits up to ``rounding`` are 0, as in the payout.
    """

    contributors: Contributors
    policy: PolicySection
    sign: int
    r: float
    pool: float
    kept: BoolArray
    rounding: float

    def amounts(self, values: FloatArray) -> FloatArray:
        """Return (d, n): what contributors earn by credits (d, p) of the players, in d draws."""
        found = np.zeros((len(values), len(self.kept)))
        if self.kept.any():
            merits = merit(values, self.policy, self.sign, self.rounding) @ self.contributors.sums[self.kept].T
            found[:, self.kept] = amounts(merits, self.fixed, self.r, self.pool, self.floor, self.cap)
        return found

    @property
    def fixed(self) -> FloatArray:
        """(k,): the weights of the fixed part of those who are kept."""
        return np.array(self.contributors.fixed_weights(self.policy.fixed), dtype=np.float64)[self.kept]

    @property
    def floor(self) -> float:
        return float(self.policy.floor)

    @property
    def cap(self) -> float | None:
        return None if self.policy.cap is None else float(self.policy.cap)

    def possible(self) -> tuple[FloatArray, FloatArray]:
        """Return (low, high), (n,) each: what contributors may earn, whatever their credits are."""
        low, high, count = np.zeros(len(self.kept)), np.zeros(len(self.kept)), int(self.kept.sum())
        if self.r == 0 or count == 1:
            low = high = self.amounts(np.zeros((1, len(self.contributors.owner))))[0]
        elif count and self.floor == 0 and self.cap is None:
            low[self.kept] = (1 - self.r) * self.pool * self.fixed / self.fixed.sum()
            high[self.kept] = low[self.kept] + self.r * self.pool
        elif count:
            # What the bounds take from some goes to others.
            low[self.kept] = self.floor
            high[self.kept] = min(self.pool - (count - 1) * self.floor, self.pool if self.cap is None else self.cap)
        return low, high


def certainty(
    credits: Credits,
    contributors: Contributors,
    policy: PolicySection,
    sign: int,
    r: float | Decimal,
    pool: float | Decimal,
    cut: BoolArray,
) -> Certainty:
    """Return how sure the amounts are of a ``pool`` of which the part ``r`` follows merit.

    ``sign`` is −1 where a lower value is paid for; ``cut`` (n,) says who is cut off from all payment. Draws have a
    fixed seed, so that the same credits give the same intervals.
    """
    paying = Paying(contributors, policy, sign, float(r), float(pool), ~cut, credits.rounding)
    point = paying.amounts(credits.values[None])[0]
    after = overtaken(credits, contributors, sign)
    if not _known(credits):
        low, high = paying.possible()
        return Certainty(np.minimum(low, point), np.maximum(high, point), after, float((point - low).sum()))
    generator = np.random.Generator(np.random.PCG64(0))
    errors = draw_errors(credits, generator)
    drawn = paying.amounts(credits.values + errors)
    tail = (1 - credits.confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    moved = _moved(paying, credits, generator)
    return Certainty(np.minimum(low, point), np.maximum(high, point), after, moved)


def _known(credits: Credits) -> bool:
    return bool(np.isfinite(credits.influence).all() and np.isfinite(credits.bias).all())


def draw_errors(credits: Credits, generator: np.random.Generator) -> FloatArray:
    """Return (DRAWS, p): simulated errors of the credits, scaled so that ± their half-width contains ``confidence``.

    The noise's variance is estimated, hence Student's t: all of a draw is over one √(χ²/degrees). The biases of credits
    that sum to F(all) − F(reference) exactly sum to 0.
    """
    variance = (credits.influence**2).sum(axis=1)
    bias = generator.standard_normal((DRAWS, len(credits.bias)))
    if credits.efficient:
        bias = (bias - bias.mean(axis=1, keepdims=True)) * (bias.shape[1] / max(bias.shape[1] - 1, 1)) ** 0.5
    errors = bias * credits.bias + _sampled(credits, generator)
    if np.isfinite(credits.degrees):
        errors *= np.sqrt(credits.degrees / generator.chisquare(credits.degrees, (DRAWS, 1)))
    expected = stdtrit(credits.degrees, (1 + credits.confidence) / 2) * np.sqrt(variance + credits.bias**2)
    half = half_width(variance, credits.bias, credits.degrees, credits.confidence)
    return errors * np.divide(half, expected, out=np.zeros_like(half), where=expected > 0)


def _sampled(credits: Credits, generator: np.random.Generator) -> FloatArray:
    """Return (DRAWS, p): sampling errors, without the bias."""
    errors = np.zeros((DRAWS, len(credits.values)))
    for start in range(0, credits.influence.shape[1], UNITS):
        columns = credits.influence[:, start : start + UNITS]
        errors += generator.standard_normal((DRAWS, columns.shape[1])) @ columns.T
    return errors


def _moved(paying: Paying, credits: Credits, generator: np.random.Generator) -> float:
    """Return half of the mean Σ|difference| between two runs' amounts, each with the sampling errors alone.

    The runs are put on either side of this one, estimate ± error/√2, so that they differ by twice the covariance.
    """
    errors = _sampled(credits, generator) / np.sqrt(2)
    difference = paying.amounts(credits.values + errors) - paying.amounts(credits.values - errors)
    return float(np.abs(difference).sum(axis=1).mean() / 2)


def overtaken(credits: Credits, contributors: Contributors, sign: int) -> FloatArray:
    """Return (n,): the probability that the next contributor in rank in truth helps more; NaN for the last.

    The difference of the two has Student's t distribution about its estimate. Where nothing is known of the noise, it
    is one half.
    """
    sums = contributors.sums
    worth = sign * (sums @ credits.values)
    order = np.argsort(-worth, kind="stable")
    first, second = order[:-1], order[1:]
    found = np.full(len(order), np.nan)
    if not _known(credits):
        found[first] = 0.5
        return found
    gap, contrasts = worth[first] - worth[second], sums[first] - sums[second]
    biases, players = contrasts * credits.bias, sums.shape[1]
    squared_bias = (biases**2).sum(axis=1)
    if credits.efficient:  # biases that sum to 0, as `draw_errors` draws them
        squared_bias = (squared_bias - biases.sum(axis=1) ** 2 / players) * (players / max(players - 1, 1))
    deviation = np.sqrt(((contrasts @ credits.influence) ** 2).sum(axis=1) + squared_bias)
    scaled = np.divide(gap, deviation, out=np.full_like(gap, np.inf), where=deviation > 0)
    found[first] = stdtr(credits.degrees, -scaled)
    return found
