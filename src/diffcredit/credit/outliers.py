"""The default's fit, with a term of its own for each coalition whose value the model cannot explain as noise.

The test. The model is y_j = size effects + m(s_j) x̃_j β + ε_j, β ~ N(0, τ²I), ε_j ~ N(0, σ²v_j). With V the values'
covariance, B the nuisance regressors and P = V⁻¹ − V⁻¹B(BᵀV⁻¹B)⁻¹BᵀV⁻¹, the weighted residuals of its fit are
e = σ²√W⁻¹·P y. Their covariance over both β and ε is σ²(I − H), H the hat matrix with the ridge λ = σ²/τ², since
PVP = P, and S(λ) = σ²·yᵀPy is distributed as σ²χ²_ν. So the deletion formulae of least squares hold with this ridge
too: the residual of a fit without j is e_j/(1 − h_j), and S without j is S − e_j²/(1 − h_j) (Cook and Weisberg 1982).

The term. An outlying coalition S* is treated as a game of its own, the mean-shift outlier model of regression:
d(S) = 1 for S = S* and 0 for any other, and φ(F) = b·φ(d) + φ(F − b·d) for any b. d joins the regressors that are not
shrunk, like a surrogate with known credits. b is then what S* has beyond the fit to all others, and the slopes and the
noise of the others do not have to account for it. This is done only if all coalitions are evaluated. Among a sample of
them an outlier is only reported: it may stand for others like it that were not evaluated. Its gain: docs/estimator.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import comb

import numpy as np
from scipy.special import stdtr

from diffcredit.coalitions import decode, encode
from diffcredit.credit.control_variates import ControlVariates
from diffcredit.credit.mixed_model import MixedModel, VarianceComponents, fit_mixed_model, with_parameters_of
from diffcredit.credit.regression import LEAST_FREE, RidgeFit, size_regressors
from diffcredit.credit.table import GameTable
from diffcredit.util.arrays import BoolArray, FloatArray

SIGNIFICANT = 0.01  # the level of the test: how often a value that follows the model is called an outlier
LEAST_DEGREES = 3  # fewer residual degrees of freedom say nothing about the noise
MOST_OUTLIERS = 8  # more mean that the noise has long tails
WORTH_A_FIT = 0.5  # from this p on, with the parameters of the fit to all, another fit is not worth its time
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

    @property
    def moves(self) -> FloatArray:
        """(n,): what the residual adds to the credits as part of this one coalition's value."""
        return self.size * indicator_game_credits(decode(self.coalition))


@dataclass(frozen=True, eq=False)
class OutlierFit:
    """A model with its nuisance regressors (m, p) and control variates, and the outliers that were found, of which
    ``modelled`` have a term of their own, first among ``controls``. ``p``: of the worst residual before any had."""

    model: MixedModel
    nuisance: FloatArray
    controls: ControlVariates
    outliers: tuple[Outlier, ...]
    modelled: int
    p: float


def fit_with_outliers(table: GameTable, controls: ControlVariates) -> OutlierFit:
    """Give one coalition after another its own term, the worst first, while the test rejects it at 1 %.

    If not all coalitions are evaluated, the worst is only reported. An outlier among the small ones can pass for noise
    that falls with the size, so its test takes λ, γ and δ from the fit to all others, with `noise_degrees`.
    """
    size_effects, rows, outliers, p = size_regressors(table.sizes, table.n), [], [], None

    def fit(controls: ControlVariates) -> tuple[MixedModel, FloatArray]:
        nuisance = np.hstack([size_effects, controls.columns])
        return fit_mixed_model(table, nuisance, controls.proxies, rows), nuisance

    model, nuisance = fit(controls)
    while True:
        worst = residual_of(model, table.values)
        spare = spare_degrees(table, nuisance.shape[1] + controls.proxies.shape[1])
        if worst.p >= WORTH_A_FIT or spare < 1 or len(rows) == MOST_OUTLIERS:
            break
        rows.append(worst.row)
        extended = _with_indicator_game(controls, table, worst.row)
        other, others_nuisance = fit(extended)
        judged = with_parameters_of(other, model, table, nuisance, controls.proxies)
        degrees = noise_degrees(table, judged.components.freedom)[worst.row]
        worst = residual_of(judged, table.values, worst.row, degrees)
        p = worst.p if p is None else p
        if worst.p >= SIGNIFICANT:
            break
        outliers.append(Outlier(encode(table.coalitions[worst.row]), worst.size, worst.studentised))
        if len(table.values) < 2**table.n - 2:
            return OutlierFit(model, nuisance, controls, tuple(outliers), 0, p)
        model, nuisance, controls = other, others_nuisance, extended
    return OutlierFit(model, nuisance, controls, tuple(outliers), len(outliers), worst.p if p is None else p)


def spare_degrees(table: GameTable, unshrunk: int) -> int:
    """Return how many more than ``unshrunk`` regressors can be fitted without shrinkage and the noise be estimated."""
    return min(table.evaluations - unshrunk - LEAST_DEGREES, len(table.values) - unshrunk - 1)


def _with_indicator_game(controls: ControlVariates, table: GameTable, row: int) -> ControlVariates:
    credits = indicator_game_credits(table.coalitions[row])
    indicator = (np.arange(len(table.values)) == row).astype(np.float64)
    return replace(
        controls,
        columns=np.column_stack([indicator, controls.columns]),
        contrasts=np.column_stack([credits - credits.mean(), controls.contrasts]),
        errors=np.column_stack([np.zeros(table.n), controls.errors]),
    )


def residual_of(
    model: MixedModel, values: FloatArray, row: int | None = None, degrees: float | None = None
) -> Residual:
    """Return the residual of a coalition; by default of the one that the fit to all others predicts worst.

    ``p`` is Student's with these ``degrees``, ν − 1 by default, times m (Bonferroni). It holds for any dependence
    between residuals and also for a row that was chosen because of its value.
    """
    fit, components = model.fit, model.components
    studentised = _studentised(fit, values, components)
    row = int(np.argmax(np.abs(studentised))) if row is None else row
    deleted = float(fit.residuals(values)[row] / max(1 - fit.leverages[row], LEAST_FREE))
    t = float(studentised[row])
    p = min(1.0, 2 * len(values) * float(stdtr(components.freedom - 1 if degrees is None else degrees, -abs(t))))
    return Residual(row, deleted / float(fit.regression.root[row]), t, p)


def _studentised(fit: RidgeFit, values: FloatArray, components: VarianceComponents) -> FloatArray:
    """Return (m,): t_j = e_j / √(σ̂²_(j)·(1 − h_j)), σ̂²_(j) = (S − e_j²/(1 − h_j)) / (ν − 1).

    Under the model, given λ, γ and δ, each is Student's t with ν − 1 degrees of freedom. 0 if e_j or 1 − h_j is tiny.
    """
    e, free = fit.residuals(values), 1 - fit.leverages
    free_rows = (free > LEAST_FREE) & (np.abs(e) > ROUNDING * np.abs(fit.regression.root * values).max(initial=0.0))
    squares = np.where(free_rows, e**2 / np.where(free_rows, free, 1.0), 0.0)
    total = components.noise * components.freedom
    return np.sign(e) * np.sqrt(squares * (components.freedom - 1) / np.maximum(total - squares, LEAST_LEFT * total))


def noise_degrees(table: GameTable, freedom: int) -> FloatArray:
    """Return (m,): the degrees of freedom of the estimate of each coalition's noise σ²s^−δ, with δ estimated too.

    Var log(σ̂²s^−δ̂) = 2/ν + (l − l̄)²·Var δ̂, l = log s, and Var δ̂ = 1/(½Σ(l − l̄)² + 1), the 1 from δ's normal
    prior. The log of χ²_d/d has variance about 2/d (Satterthwaite 1946), so 1/d = 1/(ν − 1) + (l − l̄)²/(Σ(l − l̄)² + 2).
    """
    logs = np.log(table.sizes)
    squares = (logs - np.average(logs, weights=table.replicates)) ** 2
    return 1 / (1 / (freedom - 1) + squares / (float(table.replicates @ squares) + 2))


def indicator_game_credits(coalition: BoolArray) -> FloatArray:
    """Return (n,): the Shapley values of the game that is 1 for ``coalition`` (n,) and 0 for every other."""
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
