"""Correlations over coalitions of all sizes, with the intervals of `statistics.correlation_interval`.

Rows are taken as independent draws: over a design that spreads sizes and members evenly the intervals are rather too
wide (they cover 95 to 99 % of the time for a promised 95 %).
"""

import numpy as np
from numpy.typing import NDArray

from diffcredit.validation.records import Estimate, FloatArray
from diffcredit.validation.statistics import DIGITS, correlation_interval, jackknifed_correlation

LEAST_ROWS = 10
"""An interval from fewer rows says nothing."""

# A row that the nuisance terms determine has no say in the correlation, and leaving it out changes nothing.
LEAST_FREE = 1e-9
# Residuals below this part of the values themselves are rounding.
ROUNDING = 1e-12


def pearson(a: FloatArray, b: FloatArray, confidence: float = 0.95) -> Estimate:
    """Pearson's correlation of a (m,) and b (m,), with its interval over rows. NaN where one of them is constant."""
    return correlation_interval(jackknifed_correlation(_rounded(a), _rounded(b), "pearson"), confidence)


def spearman(a: FloatArray, b: FloatArray, confidence: float = 0.95) -> Estimate:
    """Spearman's correlation of a (m,) and b (m,), with its interval over rows. NaN where one of them is constant."""
    return correlation_interval(jackknifed_correlation(_rounded(a), _rounded(b), "spearman"), confidence)


def size_adjusted(a: FloatArray, b: FloatArray, sizes: NDArray[np.intp], n: int, confidence: float = 0.95) -> Estimate:
    """Pearson's correlation of a (m,) and b (m,) with the estimator's size terms [1, t, t², log(s+½), log(n−s+½)],
    t = s/n, of the coalitions' ``sizes`` s (m,) regressed out of both, with its interval over rows.

    Any two properties that grow with the amount of data correlate over coalitions of all sizes; what is left within
    a size is what tells contributors apart. Leaving row j out takes e_aj·e_bj/(1 − h_j) from the sum of products of
    the residuals e, with h_j the row's leverage.
    """
    basis = np.linalg.qr(_size_terms(sizes, n))[0]
    x, y = (v - basis @ (basis.T @ v) for v in (a, b))
    if any(np.abs(e).max() <= ROUNDING * np.abs(v).max() for e, v in ((x, a), (y, b))):
        return Estimate(float("nan"))
    free = 1 - (basis**2).sum(axis=1)
    kept = np.where(free > LEAST_FREE, 1 / np.maximum(free, LEAST_FREE), 0.0)
    products, x_squares, y_squares = (v.sum() - np.append(0.0, v * kept) for v in (x * y, x * x, y * y))
    norms = np.sqrt(np.maximum(x_squares, 0) * np.maximum(y_squares, 0))
    jackknifed = np.divide(products, norms, out=np.full(len(a) + 1, np.nan), where=norms > 0)
    return correlation_interval(np.clip(jackknifed, -1, 1), confidence)


def _size_terms(sizes: NDArray[np.intp], n: int) -> FloatArray:
    """(m, p): as many of the terms as there are sizes, at most five; so few sizes are fitted one by one, where the
    estimator, which has its slopes to tell as well, must be sparing."""
    s = sizes.astype(np.float64)
    t = s / n
    columns = [np.ones_like(t), t, t**2, np.log(s + 0.5), np.log(n - s + 0.5)]
    return np.stack(columns[: len(np.unique(sizes))], axis=1)


def _rounded(values: FloatArray) -> FloatArray:
    """In units of the largest, so that what differs by rounding alone is equal."""
    scale = float(np.abs(values).max(initial=0.0))
    return np.round(values / scale, DIGITS) if scale > 0 else values
