"""A test of the default's model: coalitions whose values it cannot explain as noise.

The model is y_j = size effects + m(s_j) x̃_j β + ε_j, β ~ N(0, τ²I), ε_j ~ N(0, σ²v_j). With V the values' covariance,
B the nuisance regressors and P = V⁻¹ − V⁻¹B(BᵀV⁻¹B)⁻¹BᵀV⁻¹, the weighted residuals of its fit are e = σ²√W⁻¹·P y. Their
covariance over both β and ε is σ²(I − H), H the hat matrix with the ridge λ = σ²/τ², since PVP = P, and S(λ) = σ²·yᵀPy
is distributed as σ²χ²_ν. So the deletion formulae of least squares hold with this ridge too: the residual of a fit
without j is e_j/(1 − h_j), and S without j is S − e_j²/(1 − h_j) (Cook and Weisberg 1982).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import comb
from typing import Self

import numpy as np
from scipy.special import stdtr

from diffcredit.coalitions import decode, encode
from diffcredit.credit.mixed_model import MixedModel
from diffcredit.credit.regression import LEAST_FREE
from diffcredit.credit.table import GameTable
from diffcredit.util.arrays import BoolArray, FloatArray

# The level of the test: how often a value that follows the model is called an outlier.
SIGNIFICANT = 0.01
# What counts as rounding: in a residual, relative to the values; in what remains of S, relative to S.
ROUNDING, LEAST_LEFT = 1e-9, 1e-14
RESIDUAL, STUDENTISED = "residual_", "studentised_"


@dataclass(frozen=True)
class Residual:
    """The residual of the table's coalition ``row`` in a fit without it: ``size`` in the unit of the property,
    ``studentised`` in standard errors. ``p``: the probability under the model that any coalition's is that large."""

    row: int
    size: float
    studentised: float
    p: float


@dataclass(frozen=True)
class Outlier:
    """A coalition ("0110…") whose value the model cannot explain as noise, with its residual as in `Residual`."""

    coalition: str
    size: float
    studentised: float

    @classmethod
    def of(cls, coalition: BoolArray, residual: Residual) -> Self:
        return cls(encode(coalition), residual.size, residual.studentised)

    @property
    def moves(self) -> FloatArray:
        """(n,): what the residual adds to the credits as part of this one coalition's value."""
        return self.size * indicator_game_credits(decode(self.coalition))


def studentised_residuals(model: MixedModel, values: FloatArray) -> FloatArray:
    """Return (m,): t_j = e_j / √(σ̂²_(j)·(1 − h_j)), σ̂²_(j) = (S − e_j²/(1 − h_j)) / (ν − 1).

    Under the model, given λ, γ and δ, each has Student's t distribution with ν − 1 degrees of freedom. 0 if the fit
    determines the value or misses it only by rounding.
    """
    fit, of = model.regression.fit(model.components.ridge), model.components
    e, free = fit.residuals(values), 1 - fit.leverages
    free_rows = (free > LEAST_FREE) & (np.abs(e) > ROUNDING * np.abs(fit.regression.root * values).max(initial=0.0))
    squares = np.where(free_rows, e**2 / np.where(free_rows, free, 1.0), 0.0)
    total = of.noise * of.freedom
    return np.sign(e) * np.sqrt(squares * (of.freedom - 1) / np.maximum(total - squares, LEAST_LEFT * total))


def residual_of(row: int, model: MixedModel, values: FloatArray, degrees: float) -> Residual:
    """Return the residual of one coalition.

    ``p`` is Student's with these ``degrees``, times m (Bonferroni). It holds for any dependence between residuals and
    also for a row that was chosen because of its value.
    """
    studentised = float(studentised_residuals(model, values)[row])
    fit = model.regression.fit(model.components.ridge)
    deleted = float(fit.residuals(values)[row] / max(1 - fit.leverages[row], LEAST_FREE))
    p = min(1.0, 2 * len(values) * float(stdtr(degrees, -abs(studentised))))
    return Residual(row, deleted / float(fit.regression.root[row]), studentised, p)


def largest_residual(model: MixedModel, values: FloatArray) -> Residual:
    """Return the residual of the coalition that the fit to all others predicts worst, given λ, γ and δ."""
    row = int(np.argmax(np.abs(studentised_residuals(model, values))))
    return residual_of(row, model, values, model.components.freedom - 1)


def noise_degrees(table: GameTable, freedom: int) -> FloatArray:
    """Return (m,): the degrees of freedom of the estimate of each coalition's noise σ²s^−δ, with δ estimated too.

    Var log(σ̂²s^−δ̂) = 2/ν + (l − l̄)²·Var δ̂, l = log s, and Var δ̂ = 1/(½Σ(l − l̄)² + 1), the 1 from δ's normal
    prior. The log of χ²_d/d has variance about 2/d (Satterthwaite 1946), so 1/d = 1/(ν − 1) + (l − l̄)²/(Σ(l − l̄)² + 2).
    """
    logs = np.log(table.sizes)
    squares = (logs - np.average(logs, weights=table.replicates)) ** 2
    return 1 / (1 / (freedom - 1) + squares / (float(table.replicates @ squares) + 2))


def indicator_game_credits(coalition: BoolArray) -> FloatArray:
    """Return (n,): the Shapley values of the game that is 1 for ``coalition`` (n,) and 0 for every other.

    1/(n·C(n−1, s−1)) for members, −1/(n·C(n−1, s)) for the others.
    """
    n, s = len(coalition), int(coalition.sum())
    return np.where(coalition, 1 / (n * comb(n - 1, s - 1)), -1 / (n * comb(n - 1, s)))


def as_diagnostics(outliers: Iterable[Outlier]) -> dict[str, float]:
    """Return ``residual_COALITION`` and ``studentised_COALITION`` for each outlier."""
    return {
        key + outlier.coalition: number
        for outlier in outliers
        for key, number in ((RESIDUAL, outlier.size), (STUDENTISED, outlier.studentised))
    }


def outliers_in(diagnostics: Mapping[str, float]) -> tuple[Outlier, ...]:
    """Return the outliers that `as_diagnostics` wrote, in its order."""
    coalitions = [key.removeprefix(RESIDUAL) for key in diagnostics if key.startswith(RESIDUAL)]
    return tuple(Outlier(name, diagnostics[RESIDUAL + name], diagnostics[STUDENTISED + name]) for name in coalitions)
