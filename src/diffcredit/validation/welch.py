"""Intervals of sums of independent means, each with a variance of its own: Welch (1947), Satterthwaite (1946)."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import t as student

from diffcredit.util.arrays import FloatArray
from diffcredit.validation.records import Estimate


def welch_estimate(value: float, parts: Sequence[tuple[float, FloatArray]], confidence: float = 0.95) -> Estimate:
    """``value`` with the interval of `satterthwaite_estimate`, where it is a sum of independent means, each a weight w
    times the mean of a sample (R,) (or, by the delta method, where it changes with the means as that sum does):

    v = w² s²/R with the unbiased variance s², of R − 1 degrees of freedom.

    One part gives Student's interval. A sample of one tells no variance: the bounds are then NaN.
    """
    return satterthwaite_estimate(value, [variance_of_mean(weight, sample) for weight, sample in parts], confidence)


def variance_of_mean(weight: float, sample: FloatArray) -> tuple[float, int]:
    """Of a weight times the mean of a sample (R,), and its degrees of freedom; NaN and 0 of a sample of one."""
    freedom = len(sample) - 1
    return (weight**2 * float(sample.var(ddof=1)) / len(sample) if freedom else np.nan), freedom


def satterthwaite_estimate(value: float, parts: Sequence[tuple[float, int]], confidence: float = 0.95) -> Estimate:
    """``value`` with the interval ± t_ν √Σv, where its error is a sum of independent ones, each with an estimated
    variance v of so many degrees of freedom f (0: it is not known, nor are the bounds); ν = (Σv)² / Σ v²/f."""
    if not all(freedom for _, freedom in parts):
        return Estimate(value)
    variances = np.array([variance for variance, _ in parts])
    total = variances.sum()
    if total == 0:
        return Estimate(value, value, value)
    shares = variances / total
    freedom = 1 / (shares**2 / [freedom for _, freedom in parts]).sum()
    half = float(student.ppf((1 + confidence) / 2, freedom) * np.sqrt(total))
    return Estimate(value, value - half, value + half)
