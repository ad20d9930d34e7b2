"""The default estimator, ``shapley``: ridge regression with the size adjusted for, corrected by a Stein step.

The Shapley value of contributor i is the mean over sizes of its marginal contribution,

    φ_i = 1/n · Σ_{s=0}^{n−1} mean_{|S|=s, i∉S} [F(S ∪ {i}) − F(S)].

Two regressions estimate it from a sample of coalitions. The efficient fit φ_e (ridge regression of F on membership,
with size effects regressed out and slopes and noise that may change with the size) has little variance, but converges
to φ only if slopes change with the size as modelled. The consistent fit φ_u weights coalitions by importance and
converges to φ in any game, with more variance. The estimate is φ_e + ω(φ_u − φ_e), where the data choose ω: near 0
if the two agree within their noise, near 1 if they do not.

It works with fewer evaluations than contributors, since the ridge λ = σ²/τ² is estimated from the data.

Pitfalls: credits are shrunk towards the average, so differences between contributors are understated if there are few
evaluations. Intervals cover on average over the contributors; for one contributor's own sake use ``unshrunk``.

See also: `mixed_model` (slopes and noise by size), `outliers`, `control_variates`, `least_squares`, docs/estimator.md.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from diffcredit.credit.control_variates import ControlVariates
from diffcredit.credit.credits import Credits, endpoint_influence, row_squares, unit_sums
from diffcredit.credit.least_squares import shapley_weights
from diffcredit.credit.mixed_model import misfit_p
from diffcredit.credit.outliers import OutlierFit, as_diagnostics, fit_with_outliers, spare_degrees
from diffcredit.credit.regression import RidgeFit, regress, size_regressors
from diffcredit.credit.table import GameTable
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray


def shapley(table: GameTable, confidence: float, controls: ControlVariates) -> Credits:
    """Estimate Shapley values with robust empirical-Bayes intervals.

    Interval: φ̂ ± cva(m₂)·√V. V is the HC2 variance of the whole linear map plus that of the level; m₂ is the second
    moment of the shrinkage bias and the remaining tilt, over V. The diagnostics name outlying coalitions (`outliers`).
    """
    given, table = table, table.about_mean
    _require_degrees_of_freedom(table, controls)
    fitted = fit_with_outliers(table, controls)
    components, information = fitted.model.components, fitted.model.regression.information
    ridge = components.ridge * float(fitted.model.size_model.sampling_share(table).mean())
    contrasts = _contrasts(table, fitted, ridge)
    endpoints = endpoint_influence(table, components.noise)
    parameters = float((information / (information + ridge)).sum())
    return Credits.of(
        given,
        "shapley",
        contrasts.values - contrasts.values.mean() + table.level,
        np.hstack([contrasts.influence, endpoints]),
        confidence=confidence,
        bias=np.sqrt(contrasts.squared_bias),
        degrees=max(table.evaluations - fitted.model.regression.nuisance.shape[1] - parameters, 1.0),
        # An outlier's own term fits its value exactly, which leaves a deviation without a sign.
        residuals=not fitted.modelled,
        diagnostics=_diagnostics(table, fitted, contrasts, ridge)
        | {
            "effective_parameters": parameters,
            "level_standard_error": float((endpoints[0] ** 2).sum() ** 0.5),
            **{f"anchor_{i + 1}": float(b) for i, b in enumerate(contrasts.loadings[fitted.modelled :])},
        },
    )


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Estimated credit differences (n,), their influence (n, u) and squared bias (n,), the coefficients of the control
    variates (k,) and the weight ω of the Stein step."""

    values: FloatArray
    influence: FloatArray
    squared_bias: FloatArray
    loadings: FloatArray
    stein_weight: float


def _contrasts(table: GameTable, fitted: OutlierFit, ridge: float) -> Contrasts:
    n, model, controls = table.n, fitted.model, fitted.controls
    sampling = model.size_model.sampling_share(table)
    fit = model.fit if ridge == model.components.ridge else model.regression.fit(ridge)
    # HC3 where too small a variance would be unsafe, HC2 where it should be right on average.
    hc3, hc2 = (
        fit.adjusted_residuals(table.values, table.units, model.components.noise, power) * np.sqrt(sampling)
        for power in (1.0, 0.5)
    )
    efficient, slopes, coefficients = _contrast_map(fit, model.modulated, controls)
    difference = _consistent_map(table, fitted, ridge, slopes)
    difference -= efficient
    weight, tilt, slope = _stein_step(
        unit_sums(difference * hc3, table.units), difference @ table.values, efficient @ table.values
    )
    total = efficient + weight * difference if weight > 0 else efficient
    shrinkage = total @ model.modulated - (np.eye(n) - 1 / n)
    loadings = coefficients @ table.values
    squared_bias = model.components.spread * row_squares(shrinkage) + tilt + controls.errors**2 @ loadings**2
    # ω depends on the data too: dφ = L dy + D dω, where D dω = 2(1 − ω)/‖D‖² D Dᵀ dD.
    influence = unit_sums(total * hc2, table.units)
    if weight > 0:
        influence += np.outer(slope, slope @ unit_sums(difference * hc2, table.units))
    return Contrasts(total @ table.values, influence, squared_bias, loadings, weight)


def _diagnostics(table: GameTable, fitted: OutlierFit, contrasts: Contrasts, ridge: float) -> dict[str, float]:
    model, controls, n = fitted.model, fitted.controls, table.n
    noise, spread, size_model = model.components.noise, model.components.spread, model.size_model
    squared_errors = row_squares(contrasts.influence) + contrasts.squared_bias
    # ρ̂ = √(1 − mean V/the variance of the true credits about their mean).
    of_credits = spread * (1 - 1 / n) + float((controls.contrasts @ contrasts.loadings).var())
    predicted = max(0.0, 1 - float(squared_errors.mean()) / of_credits) ** 0.5
    # Over n contributors the realised atanh ρ has a standard deviation of 1/√(n − 3) (Fisher 1921): 85 % reach this.
    assured = float(np.tanh(np.arctanh(min(predicted, 1 - 1e-12)) - ndtri(0.85) / max(n - 3, 1) ** 0.5))
    return {
        "lambda": ridge,
        "sigma": noise**0.5,
        "tau": spread**0.5,
        "slope_exponent": size_model.slope,
        "noise_exponent": size_model.noise,
        "misfit": size_model.misfit,
        **misfit_p(table, fitted.nuisance, controls.proxies, size_model),
        "lack_of_fit_p": fitted.p,
        "set_apart": float(fitted.modelled),
        **as_diagnostics(fitted.outliers),
        "stein_weight": contrasts.stein_weight,
        "predicted_correlation": predicted,
        "assured_correlation": max(0.0, assured),
    }


def _require_degrees_of_freedom(table: GameTable, controls: ControlVariates) -> None:
    """Raise UserError if the regressors that are not shrunk leave too little to estimate the noise from."""
    unshrunk = size_regressors(table.sizes, table.n).shape[1] + controls.contrasts.shape[1]
    missing = -spare_degrees(table, unshrunk)
    if missing > 0:
        raise UserError(
            f"{table.evaluations} evaluations of {len(table.values)} different coalitions of {table.n} contributors: "
            f"shapley needs {missing} more"
        )


def _contrast_map(fit: RidgeFit, x: FloatArray, controls: ControlVariates) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return linear maps of the values: to the credits' contrasts (n, m), to the slopes on x̃ (n, m), and to the
    coefficients of the control variates (k, m). A contrast is a slope plus what the control variates add to it."""
    k, proxies = controls.contrasts.shape[1], controls.proxies.shape[1]
    shrunk = fit.linear_map
    if k == 0:
        return shrunk, shrunk, np.empty((0, shrunk.shape[1]))
    coefficients = fit.nuisance_map(x)[-k:]
    slopes = shrunk + controls.proxies @ coefficients[k - proxies :]
    return shrunk + controls.contrasts @ coefficients, slopes, coefficients


def _consistent_map(table: GameTable, fitted: OutlierFit, ridge: float, slopes: FloatArray) -> FloatArray:
    """Return (n, m): the importance-weighted fit's map to the contrasts.

    The modelled change of slopes with the size, (m(s) − 1) x̃ β, has no part in φ; being noise here, it is subtracted.
    """
    model, controls = fitted.model, fitted.controls
    x, weights = table.centred, shapley_weights(table)
    # The same total information, so that one ridge suits both fits.
    information = model.regression.root**2 @ row_squares(model.modulated)
    weights = weights * information / (weights @ row_squares(x))
    fit = regress(x, np.hstack([fitted.nuisance, x @ controls.proxies]), weights).fit(ridge)
    consistent, _, _ = _contrast_map(fit, x, controls)
    if model.size_model.slope == 0:
        return consistent
    consistent -= (consistent @ (model.modulated - x)) @ slopes
    return consistent


def _stein_step(influence: FloatArray, d: FloatArray, contrasts: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return ω = max(0, 1 − tr V_D/‖D‖²) for D = (L_u − L_e) y (n,), V_D its covariance from its ``influence`` (n, u);
    the squared tilt that remains (n,); and g (n,), the derivative of ω: D dω = g gᵀ dD.

    (1 − ω)² of the squared tilt ‖E D‖² remains. The tilt is estimated by max(0, ‖D‖² − tr V_D) plus one standard error,
    tr V_D·√(2/(n−1)). Half of it is distributed over the contributors like V_D, half like the squares of φ_e's
    ``contrasts`` (n,), since large slopes change most.
    """
    variances, squares = row_squares(influence), (contrasts - contrasts.mean()) ** 2
    trace, squared = float(variances.sum()), float(d @ d)
    weight = max(0.0, 1 - trace / squared) if squared > 0 else 0.0
    tilt = max(0.0, squared - trace) + trace * (2 / (len(d) - 1)) ** 0.5
    slope = d * (2 * (1 - weight) / squared) ** 0.5 if weight > 0 else np.zeros_like(d)
    return weight, (1 - weight) ** 2 * tilt * (_parts(variances) + _parts(squares)) / 2, slope


def _parts(amounts: FloatArray) -> FloatArray:
    """Return each amount's part of their sum; equal parts if the sum is 0."""
    total = float(amounts.sum())
    return amounts / total if total > 0 else np.full_like(amounts, 1 / len(amounts))
