"""Weighted ridge regression of values on membership, with the effect of the size regressed out.

For x̃ = x − s/n the Shapley value is φ_i = (F(N) − F(∅))/n + the mean over s = 1..n−1 of the within-size least-squares
slopes of F on x̃. So any function of the size can be regressed out without bias.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import get_lapack_funcs

from diffcredit.credit.table import IntArray
from diffcredit.util.arrays import FloatArray

LEAST_SINGULAR = 1e-6  # of the largest: lower singular values are rounding, their squares come from a Gram matrix
LEAST_NEW = 1e-7  # a nuisance regressor of which less than this part remains beside the others adds nothing
ROUNDING = 1e-15  # what remains of a column may be rounding if it is smaller than this part of its length
LEAST_RIDGE = 1e-6  # of the trace: with a larger ridge, rounding adds at most 1e-9 to what it multiplies
LEAST_FREE = 1e-8  # a row is determined by the fit if its residual has less than this part of its own noise


def size_regressors(sizes: IntArray | FloatArray, n: int, most: int | None = None) -> FloatArray:
    """Return (m, p): the first p of [1, t, t², log(s+½), log(n−s+½)], t = s/n, at most ``most``.

    By default p is one plus half the number of distinct sizes, so that three or more are never fitted one by one.
    """
    s = sizes.astype(np.float64)
    t = s / n
    columns = [np.ones_like(t), t, t**2, np.log(s + 0.5), np.log(n - s + 0.5)]
    return np.stack(columns[: 1 + len(np.unique(sizes)) // 2 if most is None else most], axis=1)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """What tells how much of any values a regression explains: ``root`` √w (m,); ``nuisance`` Q (m, p) orthonormal
    with Q·triangle = √w·(nuisance regressors); ``information`` d² (k,) > 0, the squared singular values of Z, and
    ``left`` U (m, k), its left singular vectors."""

    root: FloatArray
    nuisance: FloatArray
    triangle: FloatArray
    information: FloatArray
    left: FloatArray

    def scores(self, values: FloatArray) -> FloatArray:
        """Return (k,): Uᵀ√w·values."""
        return self.left.T @ (self.root * values)

    def unexplained(self, values: FloatArray) -> float:
        """Return the weighted residual sum of squares of least squares without a ridge."""
        z = self.root * values
        z = z - self.nuisance @ (self.nuisance.T @ z)
        return max(float(z @ z) - float((self.scores(values) ** 2).sum()), 0.0)


@dataclass(frozen=True, eq=False)
class Regression:
    """``projected`` Z = √w·x with √w·(nuisance regressors) projected out, (m, n); ``gram``, the smaller of ZᵀZ and ZZᵀ,
    whose spectrum is much cheaper than the singular values of Z; all else as in `Spectrum`."""

    root: FloatArray
    nuisance: FloatArray
    triangle: FloatArray
    projected: FloatArray
    gram: FloatArray

    @cached_property
    def _eigen(self) -> tuple[FloatArray, FloatArray]:
        """d² (k,) > 0 and the Gram matrix's eigenvectors: V if m ≥ n, else U."""
        squares, vectors = np.linalg.eigh(self.gram)
        kept = squares > LEAST_SINGULAR**2 * max(float(squares[-1]), 1e-300)
        return squares[kept], vectors[:, kept]

    @cached_property
    def spectrum(self) -> Spectrum:
        squares, vectors = self._eigen
        left = self.projected @ (vectors / np.sqrt(squares)) if _tall(self.projected) else vectors
        return Spectrum(self.root, self.nuisance, self.triangle, squares, left)

    @property
    def information(self) -> FloatArray:
        """(k,): d², the squared singular values of Z."""
        return self._eigen[0]

    def fit(self, ridge: float) -> "RidgeFit":
        """Minimise ‖√w(y − nuisance − xβ)‖² + ridge·‖β‖²; with a ridge of 0, take the shortest β."""
        return RidgeFit(self, ridge)

    def slopes(self, ridge: float) -> FloatArray:
        """Return A (n, m): the slopes are A √w·y. A small ridge would inflate directions that are rounding, so it takes
        the spectrum, which leaves them out."""
        z, tall = self.projected, _tall(self.projected)
        if "_eigen" in vars(self) or ridge < LEAST_RIDGE * np.trace(self.gram):
            squares, vectors = self._eigen
            if tall:
                return (vectors * (np.sqrt(squares) / (squares + ridge))) @ self.spectrum.left.T
            half = vectors / np.sqrt(squares + ridge)
            return z.T @ (half @ half.T)
        factored, inverted = get_lapack_funcs(("potrf", "potri"), (self.gram,))
        inverse = np.array(self.gram, order="F")  # in place from here on, since it may be large
        inverse[np.diag_indices_from(inverse)] += ridge
        inverse, _ = inverted(factored(inverse, lower=1, overwrite_a=1)[0], lower=1, overwrite_c=1)
        inverse = np.tril(inverse)
        inverse += np.tril(inverse, -1).T
        return inverse @ z.T if tall else z.T @ inverse


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """A regression solved with a ridge λ."""

    regression: Regression
    ridge: float

    @cached_property
    def linear_map(self) -> FloatArray:
        """L (n, m): the slopes are L y. L annihilates the nuisance regressors."""
        slopes = self.regression.slopes(self.ridge)
        slopes *= self.regression.root
        return slopes

    def nuisance_map(self, x: FloatArray) -> FloatArray:
        """Return (p, m): the linear map to the nuisance coefficients, for the regressors x (m, n) that were fitted."""
        regression = self.regression
        inverse = np.linalg.solve(regression.triangle, regression.nuisance.T) * regression.root
        return inverse - (inverse @ x) @ self.linear_map

    @property
    def _shrinkage(self) -> FloatArray:
        """(k,): d²/(d² + λ)."""
        return self.regression.information / (self.regression.information + self.ridge)

    @cached_property
    def leverages(self) -> FloatArray:
        """(m,): the diagonal of the hat matrix, nuisance regressors included."""
        spectrum = self.regression.spectrum
        return (spectrum.nuisance**2).sum(axis=1) + spectrum.left**2 @ self._shrinkage

    def residuals(self, values: FloatArray) -> FloatArray:
        """Return (m,): √w·(values − fit)."""
        spectrum = self.regression.spectrum
        z = spectrum.root * values
        fitted = spectrum.left @ (self._shrinkage * spectrum.scores(values))
        return z - spectrum.nuisance @ (spectrum.nuisance.T @ z) - fitted

    def adjusted_residuals(self, values: FloatArray, units: IntArray, noise: float, power: float) -> FloatArray:
        """Return (m,): (I − H)^−power · residuals within each unit, in the unit of the values, for a sandwich variance.

        Power 1 gives the residuals of fits without the unit (HC3, MacKinnon and White 1985; CR3 for pairs), power ½
        those of the right variance if the noise is the same for all (HC2). A unit has one row or two. A value that the
        fit determines has no residual; the deviation √``noise`` of √w·y replaces it.
        """
        e, free = self.residuals(values), 1 - self.leverages
        # At least λ/(λ + d²) of a row remains; with a small λ that is little, but not rounding.
        largest = float(self.regression.information.max(initial=0.0))
        least = min(LEAST_FREE, self.ridge / (2 * (self.ridge + largest))) if self.ridge > 0 else LEAST_FREE
        adjusted = _powered(e, free, noise, power, least)
        first, second = _pairs(units)
        if len(first):
            spectrum = self.regression.spectrum
            off = -(spectrum.nuisance[first] * spectrum.nuisance[second]).sum(axis=1)
            off -= (spectrum.left[first] * spectrum.left[second]) @ self._shrinkage
            block = np.stack([np.stack([free[first], off], -1), np.stack([off, free[second]], -1)], -2)
            kept, turn = np.linalg.eigh(block)
            turned = np.einsum("uji,uj->ui", turn, np.stack([e[first], e[second]], axis=1))
            back = np.einsum("uij,uj->ui", turn, _powered(turned, kept, noise, power, least))
            adjusted[first], adjusted[second] = back.T
        return adjusted / self.regression.root


def regress(x: FloatArray, nuisance: FloatArray, weights: FloatArray) -> Regression:
    """Prepare the regression on x (m, n), given nuisance (m, p) of full rank (p may be 0) and positive weights (m,)."""
    root = np.sqrt(weights)
    q, triangle = np.linalg.qr(nuisance * root[:, None])
    z = x * root[:, None]
    z -= q @ (q.T @ z)
    return Regression(root, q, triangle, z, z.T @ z if _tall(z) else z @ z.T)


def _tall(matrix: FloatArray) -> bool:
    return matrix.shape[0] >= matrix.shape[1]


def independent_columns(columns: FloatArray, others: FloatArray) -> list[int]:
    """Return which ``columns`` (m, k) are independent of those before and of ``others`` (m, p), a constant included."""
    kept: list[int] = []
    basis, _ = np.linalg.qr(others)
    for index, column in enumerate(columns.T):
        # Twice, to remove what rounding leaves of a column within the basis' span.
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
    """Return the rows of the units that have two, as two arrays."""
    order = np.argsort(units, kind="stable")
    again = np.flatnonzero(units[order][1:] == units[order][:-1])
    return order[again], order[again + 1]
