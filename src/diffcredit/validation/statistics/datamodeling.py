"""The linear datamodeling score (LDS): how well credits order held-out coalitions.

Credits predict the value of a coalition S by the sum Σ_{i∈S} credit_i. The LDS is Spearman's rank correlation of these
predictions with F(S) over coalitions that were not used for estimating the credits:

    LDS = ρ( (Σ_{i∈S} credit_i)_S , (F(S))_S )

    from diffcredit.validation import lds

    credits = [3.0, 1.0, 0.5, -2.0]               # n numbers, by any method
    coalitions = [[1, 1, 0, 0], [0, 1, 1, 0], …]  # B held-out coalitions, retrained from scratch
    values = [[0.71, 0.69], [0.43, 0.47], …]      # F of each, one column for each training seed
    lds(credits, coalitions, values)              # Estimate(value=0.83, low=0.71, high=0.90)

Pitfalls:

- The score ranks; it says nothing about the sizes of credits. It may favour other additive values, such as Banzhaf's,
  over the Shapley value.
- Coalitions should have one size. Over several sizes any credits of one sign predict well: larger is better.
- Noise of the training seeds keeps a perfect prediction below 1; see `diffcredit.validation.statistics.ceilings`.
- The difference of two scores has a shorter interval than the scores suggest, since both rest on the same coalitions:
  `compare_lds`.

Reference: Park et al. 2023, "TRAK: Attributing model behavior at scale".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.credit.correlations import (
    CHANCE,
    DIGITS,
    correlation,
    correlations,
    jackknifed_correlation,
    random_rankings,
)
from diffcredit.credit.verdicts import Tested
from diffcredit.errors import UserError, located
from diffcredit.util.arrays import BoolArray, FloatArray
from diffcredit.validation.statistics.ceilings import Ceilings, ceilings, known_ceiling, mean_over_seeds
from diffcredit.validation.statistics.intervals import (
    LEAST_ROWS,
    correlation_interval,
    correlation_with_interval,
    jackknife_interval,
    seeds_interval,
)
from diffcredit.validation.statistics.records import UNCLEAR, Contender, Estimate, Truth


def lds(credits: ArrayLike, coalitions: ArrayLike, values: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Score credits by how well they order held-out coalitions.

    Args:
        credits: (n,), one for each contributor, by any method; higher must mean better, as in ``values``.
        coalitions: (B, n) booleans, True for members. Use coalitions of one size that no credit was estimated from.
        values: (B,) the property of the model retrained on each coalition, or (B, R) with R training seeds, which are
            averaged.
        confidence: of the interval.

    Returns:
        The rank correlation in −1…1 with its interval over coalitions and seeds. The bounds are NaN for fewer than 10
        coalitions. The value is NaN where all predictions or all values are equal. ``float()`` gives the value alone.

    Raises:
        UserError: the shapes do not fit, or a number is not finite; the message names it.

    Memory grows with B²: a few thousand coalitions are the most.

    >>> lds([1.0, 0.0, -1.0], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], [0.9, 0.5, 0.2]).value
    1.0
    """
    c, x, y = _checked(credits, coalitions, values)
    predicted, means = predictions(c, x), mean_over_seeds(y)
    if len(means) < LEAST_ROWS:
        return Estimate(correlation(predicted, means, "spearman"))
    return correlation_with_interval(predicted, means, "spearman", confidence)


def linear_datamodeling_score(credits: ArrayLike, coalitions: ArrayLike, values: ArrayLike) -> float:
    """Compute the value of `lds` without its interval, which takes most of the time."""
    c, x, y = _checked(credits, coalitions, values)
    return correlation(predictions(c, x), mean_over_seeds(y), "spearman")


def predictions(credits: FloatArray, coalitions: BoolArray) -> FloatArray:
    """Predict coalitions (B, n) by Σ_{i∈S} credit_i / Σ_i |credit_i|, rounded so that equal sums are equal numbers."""
    scale = np.abs(credits).sum()
    return np.round(coalitions @ credits / scale, DIGITS) if scale > 0 else np.zeros(len(coalitions))


def _checked(credits: ArrayLike, coalitions: ArrayLike, values: ArrayLike) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Return arrays (n,), (B, n) and (B, R)."""
    c, x, y = np.asarray(credits, np.float64), np.asarray(coalitions, np.bool_), np.asarray(values, np.float64)
    if c.ndim != 1 or not len(c) or y.ndim not in (1, 2) or not y.size or x.shape != (len(y), len(c)):
        raise UserError(
            f"LDS: credits {c.shape}, coalitions {x.shape}, values {y.shape}; expected (n,), (B, n), and (B,) or (B, R)"
        )
    for name, array in (("credits", c), ("values", y)):
        if not np.isfinite(array).all():
            place = ", ".join(map(str, np.argwhere(~np.isfinite(array))[0]))
            raise UserError(f"LDS: {name}[{place}] is not a finite number")
    return c, x, y if y.ndim == 2 else y[:, None]


@dataclass(frozen=True)
class MethodScore:
    """A contender's correlation with the retrained models' mean F over seeds. ``spearman`` is the LDS, ``seeds`` (R,)
    the LDS by seed, ``over_seeds`` its mean with an interval over seeds, ``of_ceiling`` its part of the replicate
    ceiling (None: unknown)."""

    contender: Contender
    share: float
    spearman: Estimate
    pearson: Estimate
    seeds: tuple[float, ...]
    over_seeds: Estimate
    of_ceiling: Estimate | None


@dataclass(frozen=True)
class Difference:
    """A contender's LDS minus that of ``against``, over the same coalitions."""

    contender: str
    against: str
    share: float
    spearman: Estimate

    @property
    def verdict(self) -> str:
        if not isfinite(self.spearman.value):
            return "no score"
        if self.spearman.low > 0:
            return "better"
        return "worse" if self.spearman.high < 0 else UNCLEAR


@dataclass(frozen=True)
class LDSResult:
    """One property's scores and differences, contenders in the order given within each share, its ceilings, and by
    share what `chance` reaches."""

    against: str
    scores: tuple[MethodScore, ...]
    ceilings: tuple[Ceilings, ...]
    differences: tuple[Difference, ...]
    chance: Mapping[float, Estimate]

    @property
    def middle(self) -> float:
        """The share nearest to one half."""
        return min((each.share for each in self.ceilings), key=lambda share: abs(share - 0.5))

    def tested(self) -> Tested:
        """Return what a verdict needs: the score at the middle share of the credits that others are compared with."""
        score = next(each for each in self.at(self.middle) if each.contender.name == self.against)
        ceilings, found = self.ceilings_at(self.middle), score.spearman
        known = None if score.of_ceiling is None else ceilings.spearman.replicates
        ceiling = None if known is None else known.value
        if abs(found.value) == 1:  # a perfect order, or its reverse, whose scatter over coalitions is not known
            found = Estimate(found.value, found.value, found.value)
        return Tested(found.value, found.low, found.high, ceiling, ceilings.coalitions, ceilings.seeds)

    def at(self, share: float) -> tuple[MethodScore, ...]:
        return tuple(score for score in self.scores if score.share == share)

    def ceilings_at(self, share: float) -> Ceilings:
        return next(each for each in self.ceilings if each.share == share)


def compare_lds(truths: Sequence[Truth], contenders: Sequence[Contender], *, against: str | None = None) -> LDSResult:
    """Score every contender at every share, and its difference from ``against`` (None: the first contender), with 95 %
    intervals. Raises UserError where numbers do not fit, names are given twice, or truth has too few coalitions."""
    names = [contender.name for contender in contenders]
    if not truths or not contenders or len(set(names)) < len(names):
        raise UserError(f"LDS: {len(truths)} shares of truth and contenders {names}; expected some, each name once")
    reference = names[0] if against is None else against
    scores: list[MethodScore] = []
    differences: list[Difference] = []
    for truth in truths:
        if len(truth.values) < LEAST_ROWS:
            count = f"{len(truth.values)} coalitions of share {truth.share:g}"
            raise UserError(f"LDS: {count}; an interval needs at least {LEAST_ROWS}")
        means, ceiling, found = mean_over_seeds(truth.values), known_ceiling(truth), {}
        for contender in contenders:
            with located(contender.name):
                _checked(contender.credits, truth.coalitions, truth.values)
            predicted = predictions(contender.credits, truth.coalitions)
            spearman = found[contender.name] = jackknifed_correlation(predicted, means, "spearman")
            by_seed = np.array([correlation(predicted, seed, "spearman") for seed in truth.values.T])
            scores.append(
                MethodScore(
                    contender,
                    truth.share,
                    correlation_interval(spearman),
                    correlation_with_interval(predicted, means, "pearson"),
                    tuple(by_seed.tolist()),
                    seeds_interval(by_seed),
                    None if ceiling is None else jackknife_interval(spearman / ceiling),
                )
            )
        differences += [
            Difference(name, reference, truth.share, jackknife_interval(each - found[reference]))
            for name, each in found.items()
            if name != reference
        ]
    by_chance = {truth.share: chance(truth.coalitions, mean_over_seeds(truth.values)) for truth in truths}
    return LDSResult(reference, tuple(scores), tuple(map(ceilings, truths)), tuple(differences), by_chance)


def chance(coalitions: BoolArray, means: FloatArray) -> Estimate:
    """Return the median LDS of random rankings as credits, and the range of 95 % of them."""
    predicted = np.array([predictions(ranking, coalitions) for ranking in random_rankings(coalitions.shape[1])])
    scores = correlations(predicted, np.broadcast_to(means, predicted.shape), "spearman")
    return Estimate(*np.quantile(scores, CHANCE).tolist())
