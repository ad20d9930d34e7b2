"""Linear regression of values on centred indicators, with the effect of the size regressed out.

For x̃ = x − s/n the Shapley value is φ_i = (F(N) − F(∅))/n + the mean over s = 1..n−1 of the within-size
least-squares slopes of F on x̃. Any function of the size can therefore be regressed out without bias.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def size_regressors(sizes: NDArray[np.intp], n: int) -> FloatArray:
    """(m, p): the first p of [1, t, t², log(s+½), log(n−s+½)], t = s/n; p ≤ 5 with at most half a regressor
    a distinct size beside the constant, so that they never fit every size exactly."""
    s = sizes.astype(np.float64)
    t = s / n
    columns = [np.ones_like(t), t, t**2, np.log(s + 0.5), np.log(n - s + 0.5)]
    return np.stack(columns[: 1 + len(np.unique(sizes)) // 2], axis=1)


@dataclass(frozen=True, eq=False)
class Regression:
    """√w·x̃, with √w·(nuisance regressors) projected out, as its singular values: U diag(d) Vᵀ.

    root √w (m,), nuisance Q (m, p) orthonormal, u (m, k), d (k,) positive, v (n, k).
    """

    root: FloatArray
    nuisance: FloatArray
    u: FloatArray
    d: FloatArray
    v: FloatArray

    def linear_map(self, ridge: float) -> FloatArray:
        """L (n, m): the slopes are L y. L annihilates the nuisance regressors; its columns sum to 0."""
        return (self.v * (self.d / (self.d**2 + ridge))) @ self.u.T * self.root

    def leverages(self, ridge: float) -> FloatArray:
        """(m,): the diagonal of the hat matrix, nuisance regressors included."""
        fitted = self.u**2 @ (self.d**2 / (self.d**2 + ridge))
        return (self.nuisance**2).sum(axis=1) + fitted

    def residuals(self, values: FloatArray, ridge: float) -> FloatArray:
        """(m,): √w·(values − fit)."""
        z = self.root * values
        z = z - self.nuisance @ (self.nuisance.T @ z)
        return z - self.u @ (self.d**2 / (self.d**2 + ridge) * (self.u.T @ z))


def regress(x: FloatArray, nuisance: FloatArray, weights: FloatArray) -> Regression:
    """x (m, n), nuisance (m, p) of full rank (p may be 0), weights (m,) positive."""
    root = np.sqrt(weights)
    q, _ = np.linalg.qr(nuisance * root[:, None])
    z = x * root[:, None]
    u, d, vt = np.linalg.svd(z - q @ (q.T @ z), full_matrices=False)
    kept = d > 1e-9 * np.linalg.norm(z)
    return Regression(root, q, u[:, kept], d[kept], vt[kept].T)


def deleted_residuals(residuals: FloatArray, leverages: FloatArray, noise: float) -> FloatArray:
    """(m,): e/(1 − h), the residuals of fits without the row, for HC3 sandwiches (MacKinnon and White 1985).

    A row the fit depends on entirely (h = 1) has no such residual: the noise's deviation stands in.
    Rows are the units: replicates of one coalition count as independent evaluations.
    """
    free = 1 - leverages
    determined = free < 1e-8
    return np.where(determined, np.sqrt(noise), residuals / np.where(determined, 1.0, free))
