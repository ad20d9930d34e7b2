"""Spearman's and Pearson's correlation, of all rows and without each row in turn (jackknife).

Numbers that differ only by rounding are equal: sums in another order are ties, and a constant is constant.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diffcredit.credit.regression import size_regressors
from diffcredit.util.arrays import FloatArray

Kind = Literal["spearman", "pearson"]

DIGITS = 12  # counted from the largest: numbers that agree in them are equal
LEAST_FREE = 1e-9  # a row that the size terms determine does not affect the correlation: leaving it out changes nothing
ROUNDING = 1e-12  # residuals below this part of the values themselves are rounding
RANDOM_RANKINGS = 200  # one alone may score 0.7 among few contributors
CHANCE = (0.5, 0.025, 0.975)  # quantiles of random rankings' scores: the median, and the bounds of 95 % of them


def correlation(a: FloatArray, b: FloatArray, kind: Kind) -> float:
    """Return the correlation of a (m,) and b (m,), ties by their mean rank; NaN if one of them is constant."""
    return float(correlations(a[None], b[None], kind)[0])


def correlations(a: FloatArray, b: FloatArray, kind: Kind) -> FloatArray:
    """Return (d,): the `correlation` of each row of a (d, m) with the same row of b (d, m)."""
    return _of_centred(_centred(a, kind), _centred(b, kind))


def jackknifed_correlation(a: FloatArray, b: FloatArray, kind: Kind) -> FloatArray:
    """Return (m + 1,): the `correlation` of a (m,) and b (m,), then without the first entry, without the second, …"""
    return _of_centred(_left_out(a, kind), _left_out(b, kind))


def jackknifed_size_adjusted(a: FloatArray, b: FloatArray, sizes: NDArray[np.intp], n: int) -> FloatArray:
    """Return (m + 1,): Pearson's correlation of a (m,) and b (m,) with size effects regressed out of both.

    Then the same without the first coalition, without the second, …; NaN if the sizes determine one of them.

    Any two properties that grow with the amount of data correlate over coalitions of all sizes; what remains within a
    size distinguishes contributors. The size terms are the estimator's, of ``sizes`` s (m,); up to five sizes are
    fitted one by one. Leaving row j out subtracts e_aj·e_bj/(1 − h_j) from the sum of products of the residuals e.
    """
    basis = np.linalg.qr(size_regressors(sizes, n, most=len(np.unique(sizes))))[0]
    x, y = (v - basis @ (basis.T @ v) for v in (a, b))
    if any(np.abs(e).max() <= ROUNDING * np.abs(v).max() for e, v in ((x, a), (y, b))):
        return np.full(len(a) + 1, np.nan)
    free = 1 - (basis**2).sum(axis=1)
    kept = np.where(free > LEAST_FREE, 1 / np.maximum(free, LEAST_FREE), 0.0)
    products, x_squares, y_squares = (v.sum() - np.append(0.0, v * kept) for v in (x * y, x * x, y * y))
    norms = np.sqrt(np.maximum(x_squares, 0) * np.maximum(y_squares, 0))
    return np.clip(np.divide(products, norms, out=np.full(len(a) + 1, np.nan), where=norms > 0), -1, 1)


def random_rankings(n: int) -> FloatArray:
    """Return (:data:`RANDOM_RANKINGS`, n): the numbers 1 to n in random orders, the same ones every time."""
    numbers = np.random.Generator(np.random.PCG64(0)).random((RANDOM_RANKINGS, n))
    return (1 + np.argsort(numbers, axis=1)).astype(np.float64)


def _rounded(values: FloatArray) -> FloatArray:
    """Return the rows of (d, m), each in units of its largest."""
    scale = np.abs(values).max(axis=1, keepdims=True, initial=0.0)
    return np.round(values / np.where(scale > 0, scale, 1.0), DIGITS)


def _centred(values: FloatArray, kind: Kind) -> FloatArray:
    """Return the rows of (d, m), or their ranks, minus their means; exactly 0 if a row is constant."""
    rows = _rounded(values)
    # Minus the first value, so that equal values are exactly 0.
    from scipy.stats import rankdata  # here, because importing it takes longer than reading a ledger

    numbers = rankdata(rows, axis=1) if kind == "spearman" else rows - rows[:, :1]
    return numbers - numbers.mean(axis=1, keepdims=True)


def _left_out(values: FloatArray, kind: Kind) -> FloatArray:
    """Return (m + 1, m): row 0 is `_centred` of values (m,), row j the same without the j-th value, 0 in its place."""
    rows = _rounded(values[None])
    whole, others = _centred(rows, kind), 1 - np.eye(len(values))
    # Without a smaller value a rank falls by one, without an equal one by a half.
    fall = np.sign(rows - rows.T) / 2 + 0.5 if kind == "spearman" else 0.0
    samples = others * (whole - fall)
    samples = others * (samples - samples.sum(axis=1, keepdims=True) / (len(values) - 1))
    # A sample whose only different value was left out is rounding.
    varies = (samples**2).sum(axis=1, keepdims=True) > 1e-20 * (whole**2).sum()
    return np.vstack([whole, np.where(varies, samples, 0.0)])


def _of_centred(a: FloatArray, b: FloatArray) -> FloatArray:
    norm = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    found = np.divide((a * b).sum(axis=1), norm, out=np.full(len(norm), np.nan), where=norm > 0)
    return np.clip(found, -1, 1)
