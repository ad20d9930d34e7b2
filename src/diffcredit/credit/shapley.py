"""The default: size-adjusted ridge with slopes that may change with the size, Stein-combined with its
importance-weighted twin.

The efficient fit φ_e has little variance, but converges to the Shapley value only where its slopes s^−γ fit; the
weighted fit φ_u converges to it in any game, with more variance. The data choose γ, and say how far to go from
the one to the other.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diffcredit.credit.credits import Credits
from diffcredit.credit.critical_value import robust_critical_value
from diffcredit.credit.regression import Regression, deleted_residuals, regress, size_regressors
from diffcredit.credit.slopes import EXPONENTS, exponent_penalty, modulation
from diffcredit.credit.table import Table, importance_weights
from diffcredit.errors import UserError

FloatArray = NDArray[np.float64]

# Fewer residual degrees of freedom say nothing about the noise.
LEAST_DEGREES = 3


def shapley(table: Table, confidence: float) -> Credits:
    """Shapley credits with robust empirical-Bayes intervals, also from fewer evaluations than contributors.

    Interval: φ̂ ± cva(m₂)·√N, N the HC3 variance of the whole linear map plus the level's, m₂ the second
    moment of shrinkage bias and leftover tilt over N. It covers at the stated rate on average over the
    contributors, whatever the distribution of their credits.
    """
    n, m = table.n, len(table.values)
    x, nuisance = table.centred, size_regressors(table.sizes, table.n)
    table.require(nuisance.shape[1] + LEAST_DEGREES, "shapley")
    weights = importance_weights(table)
    exponent, modulated, plain, components = likeliest_slopes(table, nuisance)
    # The same information in all, so that one ridge suits both fits.
    weights = weights * (modulated**2).sum() / (weights @ x**2).sum()
    weighted = regress(x, nuisance, weights)
    ridge, noise = components.ridge, components.noise
    deleted = deleted_residuals(plain.residuals(table.values, ridge), plain.leverages(ridge), noise)
    efficient = plain.linear_map(ridge)
    # What is known of how slopes change with the size, (m(s) − 1) x̃ β, has no part in the Shapley value: taken
    # out first, it is no noise to the weighted fit.
    consistent = weighted.linear_map(ridge)
    consistent = consistent - consistent @ (modulated - x) @ efficient
    step = stein_step(consistent - efficient, table.values, deleted)
    slopes = efficient + step.weight * step.difference

    contrasts = slopes @ table.values
    values = contrasts - contrasts.mean() + table.level
    sampling = slopes**2 @ deleted**2
    shrinkage = slopes @ modulated - (np.eye(n) - 1 / n)
    squared_bias = components.spread * (shrinkage**2).sum(axis=1) + step.squared_tilt
    level = sum(table.endpoint_variances(noise)) / n**2
    variance = sampling + level
    m2 = np.divide(squared_bias, variance, out=np.zeros(n), where=variance > 0)
    half = robust_critical_value(m2, confidence) * np.sqrt(variance)
    return Credits(
        values=values,
        low=values - half,
        high=values + half,
        standard_error=np.sqrt(variance + squared_bias),
        method="shapley",
        evaluations=m,
        confidence=confidence,
        empty=float(table.empty.mean()),
        full=float(table.full.mean()),
        diagnostics={
            "lambda": ridge,
            "sigma": noise**0.5,
            "tau": components.spread**0.5,
            "slope_exponent": exponent,
            "stein_weight": step.weight,
            "predicted_correlation": predicted_correlation(sampling + squared_bias, components.spread),
            "effective_evaluations": float(weights.sum() ** 2 / (weights**2).sum()),
            "effective_parameters": float((plain.d**2 / (plain.d**2 + ridge)).sum()),
            "level_standard_error": level**0.5,
        },
    )


def likeliest_slopes(table: Table, nuisance: FloatArray) -> tuple[float, FloatArray, Regression, "VarianceComponents"]:
    """The exponent γ of the slopes by restricted likelihood, x̃ m(s) (m, n), its regression and its components."""
    best = None
    for exponent in EXPONENTS.tolist():
        modulated = table.centred * modulation(table.sizes, table.n, exponent)[:, None]
        fit = regress(modulated, nuisance, np.ones(len(modulated)))
        if len(fit.d) == 0:
            continue
        components = restricted_likelihood(fit, table.values)
        deviance = components.deviance + exponent_penalty(exponent)
        if best is None or deviance < best[0]:
            best = deviance, exponent, modulated, fit, components
    if best is None:
        message = "none tells one contributor from another"
        raise UserError(f"{len(table.values)} evaluations of {table.n} contributors: {message}")
    return best[1:]


@dataclass(frozen=True)
class VarianceComponents:
    """noise σ² of one value about the linear fit, ridge λ = σ²/τ², and −2 log of their likelihood."""

    noise: float
    ridge: float
    deviance: float

    @property
    def spread(self) -> float:
        """τ², the variance of the credits about their mean."""
        return self.noise / self.ridge


def restricted_likelihood(fit: Regression, values: FloatArray) -> VarianceComponents:
    """σ² and λ = σ²/τ² by REML: y = size effects + x̃β + ε, β ~ (0, τ²I), ε ~ (0, σ²I).

    −2ℓ(λ) = Σ_k log(1 + d_k²/λ) + ν log(S(λ)/ν), S(λ) = Σ_k a_k²/(1 + d_k²/λ) + RSS, with a = Uᵀy and
    ν = m − p. λ ≤ ½Σd²: an estimate of τ² near 0 is mostly chance and would leave intervals without
    width, so τ² ≥ 2σ²/Σd², after the truncation of Armstrong, Kolesár and Plagborg-Møller (2022).
    """
    squares = (fit.u.T @ values) ** 2
    unexplained = float((fit.residuals(values, 0.0) ** 2).sum())
    degrees = len(values) - fit.nuisance.shape[1]
    information = fit.d**2

    def scatter(ridge: float) -> float:
        # All values equal: any positive number serves, and the likelihood then asks for the largest λ.
        return max(float((squares * ridge / (ridge + information)).sum()) + unexplained, 1e-200)

    def deviance(ridge: float) -> float:
        return float(np.log1p(information / ridge).sum()) + degrees * np.log(scatter(ridge))

    def slope(ridge: float) -> float:
        """λ times the derivative of the deviance."""
        explained = float((squares * ridge * information / (ridge + information) ** 2).sum())
        return degrees * explained / scatter(ridge) - float((information / (ridge + information)).sum())

    # A grid first, since the deviance may have two minima; then halvings by its slope, which fix λ to the
    # last digits where its values could not.
    grid = np.geomspace(1e-10 * information.mean(), information.sum() / 2, 101)
    best = int(np.argmin([deviance(float(ridge)) for ridge in grid]))
    low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 100)])
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return VarianceComponents(scatter(high) / degrees, high, deviance(high))


@dataclass(frozen=True, eq=False)
class SteinStep:
    """The way from φ_e to φ_u: the difference of the maps (n, m), the weight ω, what tilt is left (n,)."""

    difference: FloatArray
    weight: float
    squared_tilt: FloatArray


def stein_step(difference: FloatArray, values: FloatArray, deleted: FloatArray) -> SteinStep:
    """ω = max(0, 1 − tr V_D/‖D‖²), D = (L_u − L_e) y, V_D = (L_u − L_e) Σ (L_u − L_e)ᵀ.

    Of the squared tilt ‖E D‖², (1 − ω)² is left; it is estimated by max(0, ‖D‖² − tr V_D), one standard error
    tr V_D·√(2/(n−1)) added, and spread over the contributors like V_D.
    """
    d = difference @ values
    variances = difference**2 @ deleted**2
    trace, squared = float(variances.sum()), float(d @ d)
    weight = max(0.0, 1 - trace / squared) if squared > 0 else 0.0
    tilt = max(0.0, squared - trace) + trace * (2 / (len(d) - 1)) ** 0.5
    spread = variances / trace if trace > 0 else np.zeros_like(variances)
    return SteinStep(difference, weight, (1 - weight) ** 2 * tilt * spread)


def predicted_correlation(squared_errors: FloatArray, spread: float) -> float:
    """ρ̂ = √(1 − mean V/(τ²(1 − 1/n))): the correlation with the true credits to expect, 0 at worst."""
    explained = 1 - float(squared_errors.mean()) / (spread * (1 - 1 / len(squared_errors)))
    return max(0.0, explained) ** 0.5
