"""How far two games agree on the order of contributors, when both games' credits are known only with errors."""

import numpy as np

from diffcredit.credit import Credits
from diffcredit.credit.correlations import correlations
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.statistics.records import Estimate

CORRELATIONS = np.linspace(-1, 1, 41)
DEVIATIONS = np.linspace(0.05, 2, 14)  # in units of the observed one
SAME = 0.05  # prior probability that two games have the same order
DRAWS = 4000
LEAST_VARIANCE = 1e-9  # of an error, relative to that of the observed values


def unshrunk(credits: Credits) -> tuple[FloatArray, FloatArray]:
    """Return credits minus their average as before shrinkage, and the variances of their errors; (n,) each. An estimate
    λx, λ = σ²/(σ² + s²), of a value with variance σ² observed as x with variance s², has the sampling variance v = λ²s²
    and the squared bias β² = (1 − λ)²σ²; hence λ = v/(v + β²). Errors of the endpoints move all credits by the same
    amount and are left out."""
    v = (credits.influence[:, :-2] ** 2).sum(axis=1)
    mean_square = v + credits.bias**2
    kept = np.divide(v, mean_square, out=np.ones_like(v), where=mean_square > 0)
    # a credit that was shrunk to nothing is unknown
    kept = np.maximum(kept, 1e-6)
    return (credits.values - credits.values.mean()) / kept, v / kept**2


def true_rank_correlation(
    a: tuple[FloatArray, FloatArray], b: tuple[FloatArray, FloatArray], confidence: float = 0.95, seed: int = 0
) -> Estimate:
    """Estimate Spearman's correlation between the true values behind two observed vectors, each (values, variances of
    errors).

    Errors pull the observed correlation towards 0, and resampling them would do so once more. Here the true values of
    contributor i are normal, (α_i, β_i) with deviations σ_α, σ_β and correlation ρ, observed with independent normal
    errors. The prior is uniform on a grid for the deviations and for ρ from −1 to 1, except that ρ = 1 has the
    probability `SAME`: two studies may well measure one game. The value is the median, and the bounds are quantiles, of
    the correlation of (α_i) with (β_i) in draws from the posterior. NaN where variances are not finite or all observed
    values of one vector are equal.
    """
    if not all(np.isfinite(part).all() and len(part) for part in (*a, *b)) or not a[0].std() or not b[0].std():
        return Estimate(float("nan"))
    (x, x_noise), (y, y_noise) = _standardised(*a), _standardised(*b)
    grid = np.stack(np.meshgrid(CORRELATIONS, DEVIATIONS, DEVIATIONS), axis=-1).reshape(-1, 3)
    rho, alpha_deviation, beta_deviation = grid.T[:, :, None]
    both = rho * alpha_deviation * beta_deviation
    ux, uy, determinant = _solved(alpha_deviation**2 + x_noise, both, beta_deviation**2 + y_noise, x, y)
    likelihood = -0.5 * (np.log(determinant) + x * ux + y * uy).sum(axis=1)
    prior = np.where(grid[:, 0] == 1, SAME, (1 - SAME) / (len(CORRELATIONS) - 1))
    weights = prior * np.exp(likelihood - likelihood.max())

    generator = np.random.Generator(np.random.PCG64(seed))
    chosen = np.searchsorted(np.cumsum(weights / weights.sum()), generator.random(DRAWS)).clip(max=len(grid) - 1)
    rho, alpha_deviation, beta_deviation = grid[chosen].T[:, :, None]
    both = rho * alpha_deviation * beta_deviation
    # Matheron's rule: draw everything, then correct by the regression of the true on the observed
    one, two, x_error, y_error = generator.standard_normal((4, DRAWS, len(x)))
    alpha, beta = alpha_deviation * one, beta_deviation * (rho * one + np.sqrt(1 - rho**2) * two)
    dx, dy = x - alpha - np.sqrt(x_noise) * x_error, y - beta - np.sqrt(y_noise) * y_error
    ux, uy, _ = _solved(alpha_deviation**2 + x_noise, both, beta_deviation**2 + y_noise, dx, dy)
    true = alpha + alpha_deviation**2 * ux + both * uy, beta + both * ux + beta_deviation**2 * uy
    draws = correlations(*true, "spearman")
    tail = (1 - confidence) / 2
    low, median, high = np.nanquantile(draws, [tail, 0.5, 1 - tail])
    return Estimate(float(median), float(low), float(high))


def _standardised(values: FloatArray, variances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Scale to mean 0 and deviation 1; a least variance keeps exactly known values from being singular."""
    return (values - values.mean()) / values.std(), np.maximum(variances / values.var(), LEAST_VARIANCE)


def _solved(
    xx: FloatArray, xy: FloatArray, yy: FloatArray, x: FloatArray, y: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return M⁻¹(x, y) and det M for M = [[xx, xy], [xy, yy]], element by element."""
    determinant = xx * yy - xy**2
    return (yy * x - xy * y) / determinant, (xx * y - xy * x) / determinant, determinant
