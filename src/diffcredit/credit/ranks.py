"""Confidence intervals of ranks, after Mogstad, Romano, Shaikh and Wilhelm (2023).

A rank is a count of signs: of how many differences φ_j − φ_i are positive. Intervals that cover all of one
contributor's differences at once therefore cover its rank at the same rate.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from diffcredit.util.arrays import FloatArray

IntArray = NDArray[np.intp]

# The rate of a critical value from so many draws is known to half a per cent.
DRAWS = 2000
# So many contributors' errors, with what is made of them, fit in a processor's cache.
BLOCK = 32
# So many units' normal numbers are held at once.
UNITS = 1024
# Below these parts of the numbers involved, the variance of a difference and the difference itself are rounding.
LEAST_VARIANCE = 1e-12
LEAST_DIFFERENCE = 1e-9


def rank_intervals(
    values: FloatArray,
    half_width: FloatArray,
    influence: FloatArray,
    bias: FloatArray,
    degrees: float,
    confidence: float,
) -> tuple[IntArray, IntArray]:
    """(low, high), (n,) each: the best and the worst rank each contributor may have; 1 is the largest value.

    values, half_width, bias (n,), influence (n, u): as in `Credits`, without what moves all contributors alike.
    low = 1 + how many are surely better, high = n − how many are surely worse. j is surely better than i when
    φ̂_j − φ̂_i > c_i·s_ij, s_ij the difference's deviation and c_i the ``confidence`` quantile of
    max_j |error_j − error_i|/s_ij. Errors are drawn from a fixed seed as influence · g + bias · h, g and h
    standard normal, all over one √(χ²/degrees) since the noise's variance is estimated; each contributor's are then
    scaled so that ± half_width holds ``confidence`` of them. Each interval covers for its own contributor, not all
    at once. Who has no finite half-width may have any rank, and is surely better or worse than nobody.
    """
    n = len(values)
    low, high = np.ones(n, dtype=np.intp), np.full(n, n, dtype=np.intp)
    known = np.isfinite(values) & np.isfinite(half_width) & np.isfinite(bias) & np.isfinite(influence).all(axis=1)
    if known.sum() < 2:
        return low, high
    values, half_width, influence, bias = values[known], half_width[known], influence[known], bias[known]
    deviation = np.sqrt((influence**2).sum(axis=1) + bias**2)
    expected = stdtrit(degrees, (1 + confidence) / 2) * deviation
    scale = np.divide(half_width, expected, out=np.zeros_like(expected), where=expected > 0)
    influence, bias = influence * scale[:, None], bias * scale
    deviations = _difference_deviations(influence, bias)
    largest = _largest_differences(_draw_errors(influence, bias, degrees), deviations)
    critical = np.quantile(largest, confidence, axis=1, method="higher")
    margin = critical[:, None] * deviations + LEAST_DIFFERENCE * np.abs(values).max()
    gap = values - values[:, None]
    low[known] += (gap > margin).sum(axis=1)
    high[known] -= (gap < -margin).sum(axis=1)
    return low, high


def _difference_deviations(influence: FloatArray, bias: FloatArray) -> FloatArray:
    """(n, n): the deviations s_ij of error_j − error_i; 0 where the two errors are the same."""
    covariance = influence @ influence.T
    np.fill_diagonal(covariance, covariance.diagonal() + bias**2)
    both = covariance.diagonal() + covariance.diagonal()[:, None]
    squared = both - 2 * covariance
    return np.sqrt(np.where(squared > LEAST_VARIANCE * both, squared, 0.0))


def _draw_errors(influence: FloatArray, bias: FloatArray, degrees: float) -> FloatArray:
    """(n, DRAWS)."""
    generator = np.random.Generator(np.random.PCG64(0))
    errors = bias[:, None] * generator.standard_normal((len(bias), DRAWS))
    for start in range(0, influence.shape[1], UNITS):
        columns = influence[:, start : start + UNITS]
        errors += columns @ generator.standard_normal((columns.shape[1], DRAWS))
    return errors * np.sqrt(degrees / generator.chisquare(degrees, DRAWS)) if np.isfinite(degrees) else errors


def _largest_differences(errors: FloatArray, deviations: FloatArray) -> FloatArray:
    """(n, DRAWS): max_j |error_j − error_i| / s_ij of each contributor i and draw."""
    inverse = np.divide(1.0, deviations, out=np.zeros_like(deviations), where=deviations > 0)
    largest = np.zeros_like(errors)
    for start in range(0, len(errors), BLOCK):
        others, weights = errors[start : start + BLOCK], inverse[:, start : start + BLOCK, None]
        differences = np.empty_like(others)
        for i, error in enumerate(errors):
            np.subtract(others, error, out=differences)
            np.abs(differences, out=differences)
            differences *= weights[i]
            np.maximum(largest[i], differences.max(axis=0), out=largest[i])
    return largest
