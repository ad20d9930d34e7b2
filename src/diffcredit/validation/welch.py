"""Intervals of sums of independent means, each with a variance of its own: Welch (1947), Satterthwaite (1946)."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import t as student

from diffcredit.validation.records import Estimate, FloatArray


def welch_estimate(value: float, parts: Sequence[tuple[float, FloatArray]], confidence: float = 0.95) -> Estimate:
    """``value`` with the interval ± t_ν √Σv, where it is a sum of independent means, each a weight w times the mean
    of a sample (R,) (or, by the delta method, where it changes with the means as that sum does):

    v = w² s²/R with the unbiased variance s², and ν = (Σv)² / Σ v²/(R − 1) degrees of freedom.

    One part gives Student's interval. A sample of one tells no variance: the bounds are then NaN.
    """
    if any(len(sample) < 2 for _, sample in parts):
        return Estimate(value)
    variances = np.array([weight**2 * sample.var(ddof=1) / len(sample) for weight, sample in parts])
    total = variances.sum()
    if total == 0:
        return Estimate(value, value, value)
    shares = variances / total
    freedom = 1 / (shares**2 / [len(sample) - 1 for _, sample in parts]).sum()
    half = float(student.ppf((1 + confidence) / 2, freedom) * np.sqrt(total))
    return Estimate(value, value - half, value + half)
