"""The statistics of validation: pure functions of arrays.

A score is a correlation over B coalitions of what credits foretell, Σ_{i∈S} credit_i, with F(S), the mean over R
training seeds. Its interval speaks of other coalitions of the same size *and* other seeds: seeds belong to their
coalition and are independent of those of any other, so that coalitions, each with all its seeds, are independent
draws, and leaving one out or drawing it twice takes its seeds along. Drawing seeds within coalitions besides would
count their noise twice; seeds alone would leave out the chance in which coalitions were looked at.

Everything with an interval is a *jackknifed* array (B + 1,): entry 0 from all coalitions, entry b without the b-th.
"""

from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student

from diffcredit.credit.correlations import DIGITS, Kind, correlation, jackknifed_correlation
from diffcredit.credit.mixed_model import restricted_likelihood
from diffcredit.credit.regression import regress
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray
from diffcredit.validation.records import Estimate

LEAST_ROWS = 10
"""An interval from fewer rows says nothing."""

ROUNDING = 1e-9  # of the largest: predictions that differ by less are the same
FOLDS = 20


def linear_datamodeling_score(credits: ArrayLike, coalitions: ArrayLike, values: ArrayLike) -> float:
    """The LDS: Spearman's correlation of Σ_{i∈S} credit_i with F(S) over coalitions S, in −1..1.

    credits (n,), coalitions (m, n) booleans, values (m,). NaN when all predictions or all values are equal.
    """
    c, x, y = (
        np.asarray(credits, np.float64),
        np.asarray(coalitions, np.bool_),
        np.asarray(values, np.float64),
    )
    if c.ndim != 1 or x.shape != (*y.shape, *c.shape):
        raise UserError(f"LDS: credits {c.shape}, coalitions {x.shape}, values {y.shape}; expected (n,), (m, n), (m,)")
    for name, array in (("credits", c), ("values", y)):
        if not np.isfinite(array).all():
            raise UserError(f"LDS: {name}[{int(np.argmin(np.isfinite(array)))}] is not a finite number")
    return correlation(predictions(c, x), y, "spearman")


def predictions(credits: FloatArray, coalitions: BoolArray) -> FloatArray:
    """(B,): Σ_{i∈S} credit_i / Σ_i |credit_i| of coalitions (B, n); equal sums are equal numbers."""
    scale = np.abs(credits).sum()
    return np.round(coalitions @ credits / scale, DIGITS) if scale > 0 else np.zeros(len(coalitions))


def mean_over_seeds(values: FloatArray) -> FloatArray:
    """(B,): of values (B, R), in units of the largest; equal means are equal numbers."""
    scale = np.abs(values).max()
    return np.round(values.mean(axis=1) / scale, DIGITS) if scale > 0 else np.zeros(len(values))


def correlation_with_interval(a: FloatArray, b: FloatArray, kind: Kind, confidence: float = 0.95) -> Estimate:
    """The correlation of a (B,) and b (B,) with its interval over rows, which count as independent draws: over a
    design that spreads sizes and members evenly the interval is rather too wide (.95 to .99 for a promised .95)."""
    return correlation_interval(jackknifed_correlation(a, b, kind), confidence)


def correlation_interval(jackknifed: FloatArray, confidence: float) -> Estimate:
    """A correlation's interval: tanh(z ± t·s), z = artanh r, s the jackknife's deviation of z over coalitions and t
    Student's quantile of B − 2 degrees.

    Of percentile and BCa bootstrap and Fisher's z with bootstrap, jackknife and Bonett and Wright's (2000) variance,
    this covers most on average, .964, .960 and .953 of a promised .95 for Spearman's correlation over 20, 40 and 100
    coalitions, with ties, skewed values, heavy tails and uneven noise (benchmarks/validation); differences are small.
    Bonett and Wright's is as good there and shorter, but takes its variance from normal values and falls to .86 where
    all of the noise is heavy-tailed or uneven. Pearson's interval covers as little as .77 with skewed values.
    Where r, or r without one of the coalitions, is ±1, bounds are not known.
    """
    if not (np.abs(jackknifed) < 1).all():
        return Estimate(float(jackknifed[0]))
    z = np.arctanh(jackknifed)
    half = student.ppf((1 + confidence) / 2, len(z) - 3) * _deviation(z)
    return Estimate(float(jackknifed[0]), float(np.tanh(z[0] - half)), float(np.tanh(z[0] + half)))


def jackknife_interval(jackknifed: FloatArray, confidence: float) -> Estimate:
    """θ̂ ± t·s, for the difference of two scores over the same coalitions, or a score's part of its ceiling: what the
    two share by chance is in s."""
    half = student.ppf((1 + confidence) / 2, len(jackknifed) - 3) * _deviation(jackknifed)
    return Estimate(float(jackknifed[0]), float(jackknifed[0] - half), float(jackknifed[0] + half))


def seeds_interval(scores: FloatArray, confidence: float) -> Estimate:
    """The mean of the scores (R,) against each seed alone, with Student's interval: how papers give the LDS.

    It speaks of other seeds of the *same* coalitions and is too short for others: of a promised .95 it covers .92 with
    two seeds and .89 with three, less the more there are. One seed is noisier than the mean of R, so that the mean is
    below the score against the mean. One seed alone has no interval.
    """
    mean, count = float(scores.mean()), len(scores)
    if count < 2:
        return Estimate(mean)
    half = float(student.ppf((1 + confidence) / 2, count - 1) * scores.std(ddof=1) / np.sqrt(count))
    return Estimate(mean, mean - half, mean + half)


def jackknifed_split(values: FloatArray, kind: Kind) -> FloatArray:
    """(B + 1,): the correlation of one seed's values with another's, mean over pairs of the R ≥ 2 columns of values
    (B, R): the reliability of one seed."""
    return np.mean([jackknifed_correlation(a, b, kind) for a, b in combinations(values.T, 2)], axis=0)


def replicate_ceiling(split: FloatArray, seeds: int, kind: Kind) -> FloatArray:
    """The correlation that F without noise would reach with the mean of R ``seeds``, from the correlation ρ of one
    seed with another, entry by entry: √(Rρ/(1 + (R − 1)ρ)), Spearman and Brown's formula; 0 where ρ ≤ 0.

    Spearman's ρ goes by 2 sin(πρ/6) to Pearson's, through the formula, and back by (6/π) asin(·/2), as if normal.
    In simulations this is off by at most .06 unless F is strongly skewed over coalitions (log-normal), where it is up
    to .17 too high. Pearson's ceiling turned into Spearman's is up to .22 too high there, √ of the intraclass
    correlation of ranks .18.
    """
    rho = np.where(np.isnan(split), np.nan, np.clip(split, 0, 1))
    if kind == "spearman":
        rho = 2 * np.sin(np.pi * rho / 6)
    ceiling = np.sqrt(seeds * rho / (1 + (seeds - 1) * rho))
    return 6 / np.pi * np.arcsin(ceiling / 2) if kind == "spearman" else ceiling


def replicate_ceiling_interval(split: FloatArray, seeds: int, kind: Kind, confidence: float) -> Estimate:
    """The interval of the split correlation, carried through `replicate_ceiling`, which is monotone."""
    found = correlation_interval(split, confidence)
    bounds = replicate_ceiling(np.array([found.value, found.low, found.high]), seeds, kind)
    return Estimate(*(float(bound) for bound in bounds))


def additive_predictions(coalitions: BoolArray, means: FloatArray) -> FloatArray:
    """(B,): what the best additive model says of each coalition (B, n), fitted to the others' means (B,) over seeds.

    Ridge regression with a constant, λ by restricted likelihood within the training coalitions, 20 folds: also for
    fewer coalitions than contributors. The constant is left out and each fold's model brought to mean 0 and
    deviation 1 over all coalitions: a constant is low where the value left out is high, and small slopes are those
    that the value left out has made small, so that pooled raw predictions of pure noise correlate at −.1 to −.6
    with it; these at 0.

    Their correlation with the means is what additive credits can learn from B coalitions of truth, less than what the
    best additive model reaches: by .05, .06 and .17 for 12, 20 and 50 contributors and 100 coalitions, by .22, .28 and
    .43 for 20 coalitions (benchmarks/validation). A contender that rests on more evaluations, or better ones, may
    exceed it. An interval that takes the predictions as given is somewhat short: .82 to .97 for a promised .95.
    """
    fold, found = np.arange(len(means)) % FOLDS, np.zeros(len(means))
    x = coalitions.astype(np.float64)
    for k in range(min(FOLDS, len(means))):
        training = fold != k
        count = int(training.sum())
        regression = regress(x[training], np.ones((count, 1)), np.ones(count))
        if not len(regression.information):
            continue
        # About one of them: equal values are exactly 0, and no slope is made of rounding.
        known = means[training] - means[training][0]
        said = x @ (regression.fit(restricted_likelihood(regression, known).ridge).linear_map @ known)
        spread = said.std()
        if spread > ROUNDING * np.abs(said).max():
            found[~training] = (said[~training] - said.mean()) / spread
    return np.round(found, DIGITS)


def _deviation(jackknifed: FloatArray) -> float:
    """√((B − 1)/B · Σ_b (θ_b − θ̄)²), θ_b without the b-th coalition."""
    without = jackknifed[1:]
    return float(np.sqrt((len(without) - 1) * without.var()))
