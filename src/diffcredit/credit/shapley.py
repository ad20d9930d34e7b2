"""The default: size-adjusted ridge whose slopes and noise may change with the size, Stein-combined with its
importance-weighted twin.

The efficient fit φ_e has little variance, but converges to the Shapley value only where slopes change with the
size as modelled; the weighted fit φ_u converges to it in any game, with more variance. The data say how far to go
from the one to the other.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from diffcredit.credit.anchors import Anchors
from diffcredit.credit.credits import Credits, endpoint_influence, unit_sums
from diffcredit.credit.lack_of_fit import as_diagnostics
from diffcredit.credit.least_squares import shapley_weights
from diffcredit.credit.mixed_model import MixedModel, misfit_p
from diffcredit.credit.regression import RidgeFit, regress, size_regressors
from diffcredit.credit.setting_apart import fit_with_outliers_apart, spare_degrees
from diffcredit.credit.table import Table
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray

IntArray = NDArray[np.intp]


def shapley(table: Table, confidence: float, anchors: Anchors) -> Credits:
    """Shapley credits with robust empirical-Bayes intervals, also from fewer evaluations than contributors.

    Interval: φ̂ ± cva(m₂)·√N, N the HC2 variance of the whole linear map plus the level's, m₂ the second
    moment of shrinkage bias and leftover tilt over N. It covers at the stated rate on average over the
    contributors, whatever the distribution of their credits.

    The diagnostics name coalitions whose values the model cannot explain as noise; where all are evaluated they are
    set apart (`setting_apart`).
    """
    given, table = table, table.about_mean
    n = table.n
    require_freedom(table, anchors)
    fitted = fit_with_outliers_apart(table, anchors)
    model, nuisance, anchors = fitted.model, fitted.nuisance, fitted.anchors
    noise, spread = model.components.noise, model.components.spread
    chance = model.shape.left_to_chance(table)
    ridge = model.components.ridge * float(chance.mean())
    fit = model.regression.fit(ridge)
    # HC3 where too small a variance would be unsafe, HC2 where it should be right on average.
    deleted, scaled = (
        fit.adjusted_residuals(table.values, table.units, noise, power) * np.sqrt(chance) for power in (1.0, 0.5)
    )
    efficient, slopes, coefficients = contrast_map(fit, model.modulated, anchors)
    consistent = consistent_map(table, nuisance, model, ridge, anchors, slopes)
    difference = consistent - efficient
    step = stein_step(unit_sums(difference * deleted, table.units), difference @ table.values, efficient @ table.values)
    total = efficient + step.weight * difference

    contrasts = total @ table.values
    shrinkage = total @ model.modulated - (np.eye(n) - 1 / n)
    loadings = coefficients @ table.values
    squared_bias = spread * (shrinkage**2).sum(axis=1) + step.squared_tilt + anchors.errors**2 @ loadings**2
    # ω follows the data too: dφ = L dy + D dω, where D dω = 2(1 − ω)/‖D‖² D Dᵀ dD.
    influence = unit_sums(total * scaled, table.units)
    influence += np.outer(step.slope, step.slope @ unit_sums(difference * scaled, table.units))
    squared_errors = (influence**2).sum(axis=1) + squared_bias
    predicted = predicted_correlation(
        squared_errors, spread * (1 - 1 / n) + float((anchors.contrasts @ loadings).var())
    )
    endpoints = endpoint_influence(table, noise)
    information = model.regression.information
    parameters = float((information / (information + ridge)).sum())
    return Credits.of(
        given,
        "shapley",
        contrasts - contrasts.mean() + table.level,
        np.hstack([influence, endpoints]),
        confidence=confidence,
        bias=np.sqrt(squared_bias),
        degrees=max(table.evaluations - model.regression.nuisance.shape[1] - parameters, 1.0),
        # What the fit determines has no residual, only a deviation.
        residuals=not fitted.apart,
        diagnostics={
            "lambda": ridge,
            "sigma": noise**0.5,
            "tau": spread**0.5,
            "slope_exponent": model.shape.slope,
            "noise_exponent": model.shape.noise,
            "misfit": model.shape.misfit,
            **misfit_p(table, nuisance, anchors.proxies, model.shape),
            "lack_of_fit_p": fitted.p,
            "set_apart": float(fitted.apart),
            **as_diagnostics(fitted.outliers),
            "stein_weight": step.weight,
            "predicted_correlation": predicted,
            "assured_correlation": assured_correlation(predicted, n),
            "effective_parameters": parameters,
            "level_standard_error": float((endpoints[0] ** 2).sum() ** 0.5),
            **{f"anchor_{index + 1}": float(loading) for index, loading in enumerate(loadings[fitted.apart :])},
        },
    )


def require_freedom(table: Table, anchors: Anchors) -> None:
    """Raises where the noise cannot be told from what is fitted before any slope."""
    unshrunk = size_regressors(table.sizes, table.n).shape[1] + anchors.contrasts.shape[1]
    missing = -spare_degrees(table, unshrunk)
    if missing > 0:
        raise UserError(
            f"{table.evaluations} evaluations of {len(table.values)} different coalitions of {table.n} contributors: "
            f"shapley needs {missing} more"
        )


def contrast_map(fit: RidgeFit, x: FloatArray, anchors: Anchors) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Linear maps of the values: to the credits' contrasts (n, m), to the slopes on x̃ (n, m), and to the anchors'
    coefficients (k, m). A contrast is a slope plus what the surrogates add to it."""
    k, proxies = anchors.contrasts.shape[1], anchors.proxies.shape[1]
    shrunk = fit.linear_map
    if k == 0:
        return shrunk, shrunk, np.empty((0, shrunk.shape[1]))
    coefficients = fit.nuisance_map(x)[-k:]
    slopes = shrunk + anchors.proxies @ coefficients[k - proxies :]
    return shrunk + anchors.contrasts @ coefficients, slopes, coefficients


def consistent_map(
    table: Table, nuisance: FloatArray, model: MixedModel, ridge: float, anchors: Anchors, slopes: FloatArray
) -> FloatArray:
    """(n, m): the importance-weighted fit's map to the contrasts.

    What is known of how slopes change with the size, (m(s) − 1) x̃ β, has no part in the Shapley value: taken
    out first, it is no noise to the weighted fit.
    """
    x, weights = table.centred, shapley_weights(table)
    # The same information in all, so that one ridge suits both fits.
    information = (model.regression.root**2 @ model.modulated**2).sum()
    weights = weights * information / (weights @ x**2).sum()
    fit = regress(x, np.hstack([nuisance, x @ anchors.proxies]), weights).fit(ridge)
    consistent, _, _ = contrast_map(fit, x, anchors)
    if model.shape.slope == 0:
        return consistent
    return consistent - (consistent @ (model.modulated - x)) @ slopes


@dataclass(frozen=True, eq=False)
class SteinStep:
    """The weight ω of the way from φ_e to φ_u; the squared tilt that is left (n,); and g (n,), for which
    D dω = g gᵀ dD: how the weight itself answers to the data."""

    weight: float
    squared_tilt: FloatArray
    slope: FloatArray


def stein_step(influence: FloatArray, d: FloatArray, contrasts: FloatArray) -> SteinStep:
    """ω = max(0, 1 − tr V_D/‖D‖²), D = (L_u − L_e) y (n,), V_D its covariance, from D's ``influence`` (n, u).

    Of the squared tilt ‖E D‖², (1 − ω)² is left; it is estimated by max(0, ‖D‖² − tr V_D), one standard error
    tr V_D·√(2/(n−1)) added. Half of it is spread over the contributors like V_D, half like the
    squares of φ_e's ``contrasts`` (n,): whose slopes are large, their slopes change most.
    """
    variances, squares = (influence**2).sum(axis=1), (contrasts - contrasts.mean()) ** 2
    trace, squared = float(variances.sum()), float(d @ d)
    weight = max(0.0, 1 - trace / squared) if squared > 0 else 0.0
    tilt = max(0.0, squared - trace) + trace * (2 / (len(d) - 1)) ** 0.5
    slope = d * (2 * (1 - weight) / squared) ** 0.5 if weight > 0 else np.zeros_like(d)
    return SteinStep(weight, (1 - weight) ** 2 * tilt * (_parts(variances) + _parts(squares)) / 2, slope)


def _parts(amounts: FloatArray) -> FloatArray:
    total = float(amounts.sum())
    return amounts / total if total > 0 else np.full_like(amounts, 1 / len(amounts))


def predicted_correlation(squared_errors: FloatArray, spread: float) -> float:
    """ρ̂ = √(1 − mean V/spread): the correlation with the true credits to expect, 0 at worst.

    spread: the variance of the true credits about their mean, τ²(1 − 1/n) and what anchors add.
    """
    return max(0.0, 1 - float(squared_errors.mean()) / spread) ** 0.5


def assured_correlation(predicted: float, n: int) -> float:
    """The correlation that the credits have with a probability of 85 % where ``predicted`` is to be expected.

    Over n contributors the realised correlation strays: atanh ρ by 1/√(n − 3) (Fisher 1921).
    """
    return max(0.0, float(np.tanh(np.arctanh(min(predicted, 1 - 1e-12)) - ndtri(0.85) / max(n - 3, 1) ** 0.5)))
