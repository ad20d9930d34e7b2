"""Ceilings of the LDS: the score that noise, and additivity, leave within reach.

Two ceilings bound what a method can be expected to reach on held-out coalitions. The *replicate* ceiling is the score
of a perfect prediction of F, which the noise of training seeds keeps below 1. The *additive* ceiling is the score of an
additive model fitted to the other held-out coalitions. A method that learns from more evaluations may exceed it.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from diffcredit.credit.correlations import DIGITS, Kind, jackknifed_correlation
from diffcredit.credit.mixed_model import restricted_likelihood
from diffcredit.credit.regression import regress
from diffcredit.util.arrays import BoolArray, FloatArray
from diffcredit.validation.statistics.intervals import correlation_interval, correlation_with_interval
from diffcredit.validation.statistics.records import Estimate, Truth

ROUNDING = 1e-9  # relative to the largest: predictions that differ by less are equal
FOLDS = 20


@dataclass(frozen=True)
class Ceiling:
    """Ceilings at one share, as correlations of one kind with the mean over seeds. ``split`` is the correlation of one
    seed with another; ``replicates`` that of F without noise (both None for a single seed); ``additive`` that of an
    additive model fitted to the other coalitions."""

    split: Estimate | None
    replicates: Estimate | None
    additive: Estimate


@dataclass(frozen=True)
class Ceilings:
    """The ceilings at one share, with the numbers of coalitions and seeds behind them."""

    share: float
    coalitions: int
    seeds: int
    spearman: Ceiling
    pearson: Ceiling


def ceilings(truth: Truth) -> Ceilings:
    """Estimate the ceilings of scores against one truth."""
    count, seeds = truth.values.shape
    means = mean_over_seeds(truth.values)
    additive = additive_predictions(truth.coalitions, means)

    def ceiling(kind: Kind) -> Ceiling:
        reached = correlation_with_interval(additive, means, kind)
        if seeds == 1:
            return Ceiling(None, None, reached)
        split = correlation_interval(jackknifed_split(truth.values, kind))
        # monotone, so that the bounds may be carried through it
        bounds = replicate_ceiling(np.array([split.value, split.low, split.high]), seeds, kind)
        return Ceiling(split, Estimate(*map(float, bounds)), reached)

    return Ceilings(truth.share, count, seeds, ceiling("spearman"), ceiling("pearson"))


def known_ceiling(truth: Truth) -> FloatArray | None:
    """Return the jackknifed (B + 1,) replicate ceiling, or None where it may be 0 or there is only one seed."""
    seeds = truth.values.shape[1]
    if seeds == 1:
        return None
    split = jackknifed_split(truth.values, "spearman")
    return replicate_ceiling(split, seeds, "spearman") if correlation_interval(split).low > 0 else None


def mean_over_seeds(values: FloatArray) -> FloatArray:
    """Average values (B, R) over seeds, in units of the largest, rounded so that equal means are equal numbers."""
    scale = np.abs(values).max()
    return np.round(values.mean(axis=1) / scale, DIGITS) if scale > 0 else np.zeros(len(values))


def jackknifed_split(values: FloatArray, kind: Kind) -> FloatArray:
    """Return the jackknifed (B + 1,) reliability of one seed: the correlation of one seed's values with another's,
    averaged over pairs of the R ≥ 2 columns of values (B, R)."""
    return np.mean([jackknifed_correlation(a, b, kind) for a, b in combinations(values.T, 2)], axis=0)


def replicate_ceiling(split: FloatArray, seeds: int, kind: Kind) -> FloatArray:
    """Estimate the correlation of F without noise with the mean of R ``seeds``, entry by entry.

    From the correlation ρ of one seed with another: √(Rρ/(1 + (R − 1)ρ)), the Spearman–Brown formula; 0 where ρ ≤ 0.
    Spearman's ρ goes by 2 sin(πρ/6) to Pearson's, through the formula, and back by (6/π) asin(·/2), as if normal. In
    simulations this is off by at most .06, or up to .17 too high where F is strongly skewed over coalitions.
    """
    rho = np.where(np.isnan(split), np.nan, np.clip(split, 0, 1))
    if kind == "spearman":
        rho = 2 * np.sin(np.pi * rho / 6)
    ceiling = np.sqrt(seeds * rho / (1 + (seeds - 1) * rho))
    return 6 / np.pi * np.arcsin(ceiling / 2) if kind == "spearman" else ceiling


def additive_predictions(coalitions: BoolArray, means: FloatArray) -> FloatArray:
    """Predict each coalition (B, n) by the best additive model fitted to the others' means (B,) over seeds.

    Ridge regression with a constant in 20 folds, λ by restricted likelihood within the training coalitions; it also
    works with fewer coalitions than contributors. The constant is left out, and each fold's predictions are scaled to
    mean 0 and deviation 1 over all coalitions. Without that, pooled predictions of pure noise correlate at −.1 to −.6:
    a constant is low where the held-out value is high, and slopes are small where the held-out value made them small.

    The correlation with the means is below what the best additive model reaches: by .05 to .17 for 12 to 50
    contributors and 100 coalitions, by .22 to .43 for 20 coalitions (benchmarks/validation). An interval that takes the
    predictions as given is somewhat short: it covers .82 to .97 at a nominal .95.
    """
    fold, found = np.arange(len(means)) % FOLDS, np.zeros(len(means))
    x = coalitions.astype(np.float64)
    for k in range(min(FOLDS, len(means))):
        training = fold != k
        count = int(training.sum())
        regression = regress(x[training], np.ones((count, 1)), np.ones(count))
        if not len(regression.information):
            continue
        # relative to one of them: equal values are exactly 0, and rounding gives no slope
        known = means[training] - means[training][0]
        predicted = x @ (regression.fit(restricted_likelihood(regression.spectrum, known).ridge).linear_map @ known)
        spread = predicted.std()
        if spread > ROUNDING * np.abs(predicted).max():
            found[~training] = (predicted[~training] - predicted.mean()) / spread
    return np.round(found, DIGITS)
