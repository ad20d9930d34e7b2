"""Weighted ridge regression of values on contributors, with the effect of the size regressed out.

For x̃ = x − s/n the Shapley value is φ_i = (F(N) − F(∅))/n + the mean over s = 1..n−1 of the within-size
least-squares slopes of F on x̃. Any function of the size can therefore be regressed out without bias.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diffcredit.util.arrays import FloatArray

IntArray = NDArray[np.intp]

# Singular values below this part of the largest are rounding: their squares come from a Gram matrix.
LEAST_SINGULAR = 1e-6
# A nuisance regressor with less than this part of itself left beside the others says nothing new.
LEAST_NEW = 1e-7
# Of a column's own length, what is left of it may be rounding.
ROUNDING = 1e-15
# Rows whose residual keeps less than this part of their own noise are determined by the fit.
LEAST_FREE = 1e-8


def size_regressors(sizes: IntArray, n: int) -> FloatArray:
    """(m, p): the first p of [1, t, t², log(s+½), log(n−s+½)], t = s/n; p ≤ 5 with at most half a regressor
    a distinct size beside the constant: values of three sizes or more are never fitted size by size."""
    s = sizes.astype(np.float64)
    t = s / n
    columns = [np.ones_like(t), t, t**2, np.log(s + 0.5), np.log(n - s + 0.5)]
    return np.stack(columns[: 1 + len(np.unique(sizes)) // 2], axis=1)


@dataclass(frozen=True, eq=False)
class Regression:
    """Z = √w·x with √w·(nuisance regressors) projected out, (m, n).

    root √w (m,), nuisance Q (m, p) orthonormal with Q·triangle = √w·(nuisance regressors); gram is the smaller of
    ZᵀZ and ZZᵀ: cheaper by far than singular values of Z, and x̃ is well conditioned.
    """

    root: FloatArray
    nuisance: FloatArray
    triangle: FloatArray
    projected: FloatArray
    gram: FloatArray

    @property
    def _tall(self) -> bool:
        return self.projected.shape[0] >= self.projected.shape[1]

    @cached_property
    def _spectrum(self) -> tuple[FloatArray, FloatArray]:
        """d² (k,) > 0 and the Gram matrix's vectors: V where m ≥ n, else U."""
        squares, vectors = np.linalg.eigh(self.gram)
        kept = squares > LEAST_SINGULAR**2 * max(float(squares[-1]), 1e-300)
        return squares[kept], vectors[:, kept]

    @property
    def information(self) -> FloatArray:
        """(k,): d², the squared singular values of Z."""
        return self._spectrum[0]

    def scores(self, values: FloatArray) -> FloatArray:
        """(k,): Uᵀ√w·values."""
        squares, vectors = self._spectrum
        z = self.root * values
        return vectors.T @ (self.projected.T @ z) / np.sqrt(squares) if self._tall else vectors.T @ z

    def unexplained(self, values: FloatArray) -> float:
        """The residual sum of squares, weighted, of least squares without a ridge."""
        z = self.root * values
        z = z - self.nuisance @ (self.nuisance.T @ z)
        return max(float(z @ z) - float((self.scores(values) ** 2).sum()), 0.0)

    def fit(self, ridge: float) -> "RidgeFit":
        """The minimum of ‖√w(y − nuisance − xβ)‖² + ridge·‖β‖²; the shortest β where the ridge is 0."""
        # By the spectrum, which leaves out directions of rounding alone: a small ridge would blow them up.
        squares, vectors = self._spectrum
        inverse = (vectors / (squares + ridge)) @ vectors.T
        slopes = inverse @ self.projected.T if self._tall else self.projected.T @ inverse
        return RidgeFit(self, slopes, ridge)


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """A regression solved with a ridge λ: slopes A (n, m), a linear map of √w·y."""

    regression: Regression
    slopes: FloatArray
    ridge: float

    @property
    def linear_map(self) -> FloatArray:
        """L (n, m): the slopes are L y. L annihilates the nuisance regressors."""
        return self.slopes * self.regression.root

    def nuisance_map(self, x: FloatArray) -> FloatArray:
        """(p, m): the linear map to the nuisance coefficients, for the regressors x (m, n) that were fitted."""
        of = self.regression
        inverse = np.linalg.solve(of.triangle, of.nuisance.T) * of.root
        return inverse - (inverse @ x) @ self.linear_map

    def _hat(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """Entries of the hat matrix, nuisance regressors included."""
        of = self.regression
        fitted = np.einsum("jk,kj->j", of.projected[rows], self.slopes[:, columns])
        return np.einsum("jk,jk->j", of.nuisance[rows], of.nuisance[columns]) + fitted

    @cached_property
    def leverages(self) -> FloatArray:
        """(m,): the diagonal of the hat matrix, nuisance regressors included."""
        every = np.arange(len(self.regression.root))
        return self._hat(every, every)

    def residuals(self, values: FloatArray) -> FloatArray:
        """(m,): √w·(values − fit)."""
        of = self.regression
        z = of.root * values
        return z - of.nuisance @ (of.nuisance.T @ z) - of.projected @ (self.slopes @ z)

    def adjusted_residuals(self, values: FloatArray, units: IntArray, noise: float, power: float) -> FloatArray:
        """(m,): (I − H)^−power · residuals within each unit, in the units of the values, for a sandwich.

        Power 1 gives the residuals of fits without the unit (HC3, MacKinnon and White 1985; CR3 for pairs), ½
        residuals of the right variance where the noise is the same for all (HC2). A unit has one row or two:
        H's block is taken whole. What the fit determines entirely has no such residual: the deviation of
        ``noise``, the variance of √w·y, stands in.
        """
        e, free = self.residuals(values), 1 - self.leverages
        # λ leaves at least λ/(λ + d²) of a row: with a small one, that little is still no rounding.
        largest = float(self.regression.information.max(initial=0.0))
        least = min(LEAST_FREE, self.ridge / (2 * (self.ridge + largest))) if self.ridge > 0 else LEAST_FREE
        adjusted = _powered(e, free, noise, power, least)
        first, second = _pairs(units)
        if len(first):
            off = -self._hat(first, second)
            block = np.stack([np.stack([free[first], off], -1), np.stack([off, free[second]], -1)], -2)
            kept, turn = np.linalg.eigh(block)
            turned = np.einsum("uji,uj->ui", turn, np.stack([e[first], e[second]], axis=1))
            back = np.einsum("uij,uj->ui", turn, _powered(turned, kept, noise, power, least))
            adjusted[first], adjusted[second] = back.T
        return adjusted / self.regression.root


def regress(x: FloatArray, nuisance: FloatArray, weights: FloatArray) -> Regression:
    """x (m, n), nuisance (m, p) of full rank (p may be 0), weights (m,) positive."""
    root = np.sqrt(weights)
    q, triangle = np.linalg.qr(nuisance * root[:, None])
    z = x * root[:, None]
    z -= q @ (q.T @ z)
    return Regression(root, q, triangle, z, z.T @ z if z.shape[0] >= z.shape[1] else z @ z.T)


def independent_columns(columns: FloatArray, others: FloatArray) -> list[int]:
    """Which of ``columns`` (m, k) say something beside ``others`` (m, p), a constant among them, and the columns
    before them."""
    kept: list[int] = []
    basis, _ = np.linalg.qr(others)
    for index, column in enumerate(columns.T):
        # Twice: what rounding leaves of a column within the basis' span is taken out again.
        rest = column - basis @ (basis.T @ column)
        rest = rest - basis @ (basis.T @ rest)
        least = LEAST_NEW * np.linalg.norm(column - column.mean()) + ROUNDING * np.linalg.norm(column)
        if np.linalg.norm(rest) > max(least, 1e-300):
            kept.append(index)
            basis = np.column_stack([basis, rest / np.linalg.norm(rest)])
    return kept


def _powered(e: FloatArray, free: FloatArray, noise: float, power: float, least: float) -> FloatArray:
    determined = free < least
    return np.where(determined, np.sqrt(noise), e / np.where(determined, 1.0, free) ** power)


def _pairs(units: IntArray) -> tuple[IntArray, IntArray]:
    """The rows of units that have two, as two arrays."""
    order = np.argsort(units, kind="stable")
    again = np.flatnonzero(units[order][1:] == units[order][:-1])
    return order[again], order[again + 1]
