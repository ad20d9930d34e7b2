"""Does the default's model fit? Coalitions whose values it cannot explain as noise.

The model is y_j = size effects + m(s_j) x̃_j β + ε_j, β ~ N(0, τ²I), ε_j ~ N(0, σ²v_j). With V the values' covariance,
B the nuisance regressors and P = V⁻¹ − V⁻¹B(BᵀV⁻¹B)⁻¹BᵀV⁻¹, the weighted residuals of its fit are e = σ²√W⁻¹·P y: their
covariance over β and ε alike is σ²(I − H), H the hat matrix with the ridge λ = σ²/τ², since PVP = P. And
S(λ) = σ²·yᵀPy has σ²χ²_ν. So what is known of deletion in least squares holds with this ridge too: the residual of a
fit without j is e_j/(1 − h_j), and S without j is S − e_j²/(1 − h_j) (Cook and Weisberg 1982).
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

# How often values that follow the model are taken not to.
SIGNIFICANT = 0.01
# Of the values' own size, what may be rounding in a residual; and of S, in what is left of it.
ROUNDING, LEAST_LEFT = 1e-9, 1e-14
RESIDUAL, STUDENTISED = "residual_", "studentised_"


@dataclass(frozen=True)
class Residual:
    """The residual of the table's coalition ``row`` in a fit without it: ``size`` in the units of the property,
    ``studentised`` in standard errors. ``p``: how often, under the model, some coalition's is that large."""

    row: int
    size: float
    studentised: float
    p: float


@dataclass(frozen=True)
class Outlier:
    """A coalition ("0110…") whose value is no noise by the model, with its `Residual`'s size, studentised too."""

    coalition: str
    size: float
    studentised: float

    @classmethod
    def of(cls, coalition: BoolArray, residual: Residual) -> Self:
        return cls(encode(coalition), residual.size, residual.studentised)

    @property
    def moves(self) -> FloatArray:
        """(n,): what the residual adds to the credits, counted as the value of this one coalition."""
        return self.size * indicator_game_credits(decode(self.coalition))


def studentised_residuals(model: MixedModel, values: FloatArray) -> FloatArray:
    """(m,): t_j = e_j / √(σ̂²_(j)·(1 − h_j)), σ̂²_(j) = (S − e_j²/(1 − h_j)) / (ν − 1).

    Under the model, λ, γ and δ given, each has Student's t distribution with ν − 1 degrees of freedom. 0 where the fit
    determines the value, or misses it by rounding alone.
    """
    fit, of = model.regression.fit(model.components.ridge), model.components
    e, free = fit.residuals(values), 1 - fit.leverages
    told = (free > LEAST_FREE) & (np.abs(e) > ROUNDING * np.abs(fit.regression.root * values).max(initial=0.0))
    squares = np.where(told, e**2 / np.where(told, free, 1.0), 0.0)
    total = of.noise * of.freedom
    return np.sign(e) * np.sqrt(squares * (of.freedom - 1) / np.maximum(total - squares, LEAST_LEFT * total))


def residual_of(row: int, model: MixedModel, values: FloatArray, degrees: float) -> Residual:
    """The residual of one coalition. ``p`` by Student's t with these ``degrees``, times m (Bonferroni): it holds
    whatever the dependence of the residuals, also for a row that is asked about because of its value."""
    studentised = float(studentised_residuals(model, values)[row])
    fit = model.regression.fit(model.components.ridge)
    deleted = float(fit.residuals(values)[row] / max(1 - fit.leverages[row], LEAST_FREE))
    p = min(1.0, 2 * len(values) * float(stdtr(degrees, -abs(studentised))))
    return Residual(row, deleted / float(fit.regression.root[row]), studentised, p)


def largest_residual(model: MixedModel, values: FloatArray) -> Residual:
    """Of the coalition that the fit to all others foretells worst, with λ, γ and δ taken as given."""
    row = int(np.argmax(np.abs(studentised_residuals(model, values))))
    return residual_of(row, model, values, model.components.freedom - 1)


def noise_degrees(table: GameTable, freedom: int) -> FloatArray:
    """(m,): how many degrees of freedom the estimate of each coalition's own noise σ²s^−δ is worth, δ estimated too.

    Var log(σ̂²s^−δ̂) = 2/ν + (l − l̄)²·Var δ̂, l = log s, and Var δ̂ = 1/(½Σ(l − l̄)² + 1), the 1 from δ's normal
    prior. A χ²_d/d has about 2/d (Satterthwaite 1946), so 1/d = 1/(ν − 1) + (l − l̄)²/(Σ(l − l̄)² + 2).
    """
    logs = np.log(table.sizes)
    squares = (logs - np.average(logs, weights=table.replicates)) ** 2
    return 1 / (1 / (freedom - 1) + squares / (float(table.replicates @ squares) + 2))


def indicator_game_credits(coalition: BoolArray) -> FloatArray:
    """(n,): the Shapley values of the game that is 1 for ``coalition`` (n,) and 0 for every other:
    1/(n·C(n−1, s−1)) for members, −1/(n·C(n−1, s)) for the others."""
    n, s = len(coalition), int(coalition.sum())
    return np.where(coalition, 1 / (n * comb(n - 1, s - 1)), -1 / (n * comb(n - 1, s)))


def as_diagnostics(outliers: Iterable[Outlier]) -> dict[str, float]:
    """``residual_COALITION`` and ``studentised_COALITION`` for each."""
    return {
        key + outlier.coalition: number
        for outlier in outliers
        for key, number in ((RESIDUAL, outlier.size), (STUDENTISED, outlier.studentised))
    }


def outliers_in(diagnostics: Mapping[str, float]) -> tuple[Outlier, ...]:
    """What `as_diagnostics` wrote, in its order."""
    coalitions = [key.removeprefix(RESIDUAL) for key in diagnostics if key.startswith(RESIDUAL)]
    return tuple(Outlier(name, diagnostics[RESIDUAL + name], diagnostics[STUDENTISED + name]) for name in coalitions)
