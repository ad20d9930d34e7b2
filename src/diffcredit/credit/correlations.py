"""Spearman's and Pearson's correlation: of all rows, and without each of them in turn; their intervals are in
`statistics`.

What differs by rounding alone is equal: sums in another order are ties, and a constant is constant.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from diffcredit.util.arrays import FloatArray

Kind = Literal["spearman", "pearson"]

DIGITS = 12  # of the largest: numbers that differ by less are equal
# A row that the nuisance terms determine has no say in the correlation, and leaving it out changes nothing.
LEAST_FREE = 1e-9
# Residuals below this part of the values themselves are rounding.
ROUNDING = 1e-12


def correlation(a: FloatArray, b: FloatArray, kind: Kind) -> float:
    """Of a (m,) and b (m,), ties by their mean rank; NaN where one of them is constant."""
    return float(correlations(a[None], b[None], kind)[0])


def correlations(a: FloatArray, b: FloatArray, kind: Kind) -> FloatArray:
    """(d,): `correlation` of each row of a (d, m) with the same row of b (d, m)."""
    return _of_centred(_centred(a, kind), _centred(b, kind))


def jackknifed_correlation(a: FloatArray, b: FloatArray, kind: Kind) -> FloatArray:
    """(m + 1,): `correlation` of a (m,) and b (m,), then without the first entry of both, without the second, …"""
    return _of_centred(_left_out(a, kind), _left_out(b, kind))


def jackknifed_size_adjusted(a: FloatArray, b: FloatArray, sizes: NDArray[np.intp], n: int) -> FloatArray:
    """(m + 1,): Pearson's correlation of a (m,) and b (m,) with the estimator's size terms
    [1, t, t², log(s+½), log(n−s+½)], t = s/n, of the coalitions' ``sizes`` s (m,) regressed out of both, then the same
    without the first coalition, without the second, …; NaN where the sizes tell all of one of them.

    Any two properties that grow with the amount of data correlate over coalitions of all sizes; what is left within
    a size is what tells contributors apart. Leaving row j out takes e_aj·e_bj/(1 − h_j) from the sum of products of
    the residuals e, with h_j the row's leverage.
    """
    basis = np.linalg.qr(_size_terms(sizes, n))[0]
    x, y = (v - basis @ (basis.T @ v) for v in (a, b))
    if any(np.abs(e).max() <= ROUNDING * np.abs(v).max() for e, v in ((x, a), (y, b))):
        return np.full(len(a) + 1, np.nan)
    free = 1 - (basis**2).sum(axis=1)
    kept = np.where(free > LEAST_FREE, 1 / np.maximum(free, LEAST_FREE), 0.0)
    products, x_squares, y_squares = (v.sum() - np.append(0.0, v * kept) for v in (x * y, x * x, y * y))
    norms = np.sqrt(np.maximum(x_squares, 0) * np.maximum(y_squares, 0))
    return np.clip(np.divide(products, norms, out=np.full(len(a) + 1, np.nan), where=norms > 0), -1, 1)


def _size_terms(sizes: NDArray[np.intp], n: int) -> FloatArray:
    """(m, p): as many of the terms as there are sizes, at most five; so few sizes are fitted one by one, where the
    estimator, which has its slopes to tell as well, must be sparing."""
    s = sizes.astype(np.float64)
    t = s / n
    columns = [np.ones_like(t), t, t**2, np.log(s + 0.5), np.log(n - s + 0.5)]
    return np.stack(columns[: len(np.unique(sizes))], axis=1)


def _rounded(values: FloatArray) -> FloatArray:
    """The rows of (d, m), each in units of its largest."""
    scale = np.abs(values).max(axis=1, keepdims=True, initial=0.0)
    return np.round(values / np.where(scale > 0, scale, 1.0), DIGITS)


def _centred(values: FloatArray, kind: Kind) -> FloatArray:
    """The rows of (d, m), or their ranks, about their means; exactly 0 where a row is constant."""
    rows = _rounded(values)
    # About one of them first: equal values are then exactly 0.
    numbers = rankdata(rows, axis=1) if kind == "spearman" else rows - rows[:, :1]
    return numbers - numbers.mean(axis=1, keepdims=True)


def _left_out(values: FloatArray, kind: Kind) -> FloatArray:
    """(m + 1, m): row 0 is `_centred` of values (m,), row j the same without the j-th value, 0 in its place."""
    rows = _rounded(values[None])
    whole, others = _centred(rows, kind), 1 - np.eye(len(values))
    # Without a smaller value a rank is one less, without an equal one a half.
    fall = np.sign(rows - rows.T) / 2 + 0.5 if kind == "spearman" else 0.0
    samples = others * (whole - fall)
    samples = others * (samples - samples.sum(axis=1, keepdims=True) / (len(values) - 1))
    # Rounding is all that is left of a sample whose one value that differs was left out.
    told = (samples**2).sum(axis=1, keepdims=True) > 1e-20 * (whole**2).sum()
    return np.vstack([whole, np.where(told, samples, 0.0)])


def _of_centred(a: FloatArray, b: FloatArray) -> FloatArray:
    """Of each row of a with the same row of b, both about their means; NaN where one of them is 0."""
    norm = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    found = np.divide((a * b).sum(axis=1), norm, out=np.full(len(norm), np.nan), where=norm > 0)
    return np.clip(found, -1, 1)
