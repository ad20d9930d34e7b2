"""Weighted ridge regression of values on contributors, with the effect of the size regressed out.

For x̃ = x − s/n the Shapley value is φ_i = (F(N) − F(∅))/n + the mean over s = 1..n−1 of the within-size
least-squares slopes of F on x̃. Any function of the size can therefore be regressed out without bias.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

# Singular values below this part of the largest are rounding: their squares come from a Gram matrix.
LEAST_SINGULAR = 1e-6
# A nuisance regressor with less than this part of itself left beside the others says nothing new.
LEAST_NEW = 1e-7
# Rows whose residual keeps less than this part of their own noise are determined by the fit.
LEAST_FREE = 1e-8


def size_regressors(sizes: IntArray, n: int) -> FloatArray:
    """(m, p): the first p of [1, t, t², log(s+½), log(n−s+½)], t = s/n; p ≤ 5 with at most half a regressor
    a distinct size beside the constant, so that they never fit every size exactly."""
    s = sizes.astype(np.float64)
    t = s / n
    columns = [np.ones_like(t), t, t**2, np.log(s + 0.5), np.log(n - s + 0.5)]
    return np.stack(columns[: 1 + len(np.unique(sizes)) // 2], axis=1)


@dataclass(frozen=True, eq=False)
class Regression:
    """√w·x, with √w·(nuisance regressors) projected out, as its singular values: U diag(d) Vᵀ.

    root √w (m,), nuisance Q (m, p) orthonormal with Q·triangle = √w·(nuisance regressors), u (m, k), d (k,)
    positive, v (n, k).
    """

    root: FloatArray
    nuisance: FloatArray
    triangle: FloatArray
    u: FloatArray
    d: FloatArray
    v: FloatArray

    def linear_map(self, ridge: float) -> FloatArray:
        """L (n, m): the slopes are L y. L annihilates the nuisance regressors."""
        return ((self.v * (self.d / (self.d**2 + ridge))) @ self.u.T) * self.root

    def nuisance_map(self, x: FloatArray, slopes: FloatArray) -> FloatArray:
        """(p, m): the nuisance coefficients beside the slopes of the linear map ``slopes`` (n, m) on x (m, n)."""
        inverse = np.linalg.solve(self.triangle, self.nuisance.T) * self.root
        return inverse - (inverse @ x) @ slopes

    def leverages(self, ridge: float) -> FloatArray:
        """(m,): the diagonal of the hat matrix, nuisance regressors included."""
        return self._hat(np.arange(len(self.root)), np.arange(len(self.root)), ridge)

    def _hat(self, rows: IntArray, columns: IntArray, ridge: float) -> FloatArray:
        shrunk = self.d**2 / (self.d**2 + ridge)
        fitted = np.einsum("jk,jk,k->j", self.u[rows], self.u[columns], shrunk)
        return np.einsum("jk,jk->j", self.nuisance[rows], self.nuisance[columns]) + fitted

    def residuals(self, values: FloatArray, ridge: float) -> FloatArray:
        """(m,): √w·(values − fit)."""
        z = self.root * values
        z = z - self.nuisance @ (self.nuisance.T @ z)
        return z - self.u @ (self.d**2 / (self.d**2 + ridge) * (self.u.T @ z))

    def adjusted_residuals(
        self, values: FloatArray, ridge: float, units: IntArray, noise: float, power: float
    ) -> FloatArray:
        """(m,): (I − H)^−power · residuals within each unit, in the units of the values, for a sandwich.

        Power 1 gives the residuals of fits without the unit (HC3, MacKinnon and White 1985; CR3 for pairs), ½
        residuals of the right variance where the noise is the same for all (HC2). A unit has one row or two:
        H's block is taken whole. What the fit determines entirely has no such residual: the deviation of
        ``noise``, the variance of √w·y, stands in.
        """
        e = self.residuals(values, ridge)
        free = 1 - self.leverages(ridge)
        adjusted = _powered(e, free, noise, power)
        first, second = _pairs(units)
        if len(first):
            off = -self._hat(first, second, ridge)
            block = np.stack([np.stack([free[first], off], -1), np.stack([off, free[second]], -1)], -2)
            kept, turn = np.linalg.eigh(block)
            turned = np.einsum("uji,uj->ui", turn, np.stack([e[first], e[second]], axis=1))
            back = np.einsum("uij,uj->ui", turn, _powered(turned, kept, noise, power))
            adjusted[first], adjusted[second] = back.T
        return adjusted / self.root


def regress(x: FloatArray, nuisance: FloatArray, weights: FloatArray) -> Regression:
    """x (m, n), nuisance (m, p) of full rank (p may be 0), weights (m,) positive."""
    root = np.sqrt(weights)
    q, triangle = np.linalg.qr(nuisance * root[:, None])
    z = x * root[:, None]
    z -= q @ (q.T @ z)
    # The smaller of the two Gram matrices: cheaper by far than singular values of z, and x̃ is well conditioned.
    tall = z.shape[0] >= z.shape[1]
    squares, vectors = np.linalg.eigh(z.T @ z if tall else z @ z.T)
    kept = squares > LEAST_SINGULAR**2 * max(float(squares[-1]), 1e-300)
    d, vectors = np.sqrt(squares[kept]), vectors[:, kept]
    others = (z @ vectors if tall else z.T @ vectors) / d
    u, v = (others, vectors) if tall else (vectors, others)
    return Regression(root, q, triangle, u, d, v)


def independent_columns(columns: FloatArray, others: FloatArray) -> list[int]:
    """Which of ``columns`` (m, k) say something beside ``others`` (m, p) and the columns before them."""
    kept: list[int] = []
    basis, _ = np.linalg.qr(others)
    for index, column in enumerate(columns.T):
        # Twice: what rounding leaves of a column within the basis' span is taken out again.
        rest = column - basis @ (basis.T @ column)
        rest = rest - basis @ (basis.T @ rest)
        if np.linalg.norm(rest) > LEAST_NEW * max(np.linalg.norm(column), 1e-300):
            kept.append(index)
            basis = np.column_stack([basis, rest / np.linalg.norm(rest)])
    return kept


def _powered(e: FloatArray, free: FloatArray, noise: float, power: float) -> FloatArray:
    determined = free < LEAST_FREE
    return np.where(determined, np.sqrt(noise), e / np.where(determined, 1.0, free) ** power)


def _pairs(units: IntArray) -> tuple[IntArray, IntArray]:
    """The rows of units that have two, as two arrays."""
    order = np.argsort(units, kind="stable")
    again = np.flatnonzero(units[order][1:] == units[order][:-1])
    return order[again], order[again + 1]
