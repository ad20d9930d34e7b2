"""The Banzhaf value: the mean marginal contribution if every other contributor joins by a fair coin.

β_i = 2^(1−n) Σ_{S∌i} (F(S∪{i}) − F(S)). Write χ_T(S) = ∏_{i∈T} (2x_i − 1). Under fair coins the χ_T are orthonormal,
and β_i/2 is F's coefficient of χ_{i}. So regressing F on 1 and the centred indicators x_i − ½ gives β, and regressors
made of the χ_T of two or more contributors do not change the limit of the slopes. Those that depend on the size alone
are the Krawtchouk polynomials K_d(s) = Σ_{|T|=d} χ_T of degree d ≥ 2: the curvature of F in the size.

The empty and the full coalition have probability 2⁻ⁿ each. They are not drawn, so their part in β_i is added exactly:
2^(1−n) times F(N) − F(∅), minus the regression's prediction of it. As rows, they might distort the curvature.

Banzhaf values do not sum to F(N) − F(∅); the diagnostic ``sum`` is their sum.
"""

from math import comb, ldexp

import numpy as np

from diffcredit.credit.credits import Credits, endpoint_influence, unit_sums
from diffcredit.credit.regression import regress
from diffcredit.credit.table import GameTable, IntArray
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray

HIGHEST_DEGREE = 4  # polynomials beyond it explain almost nothing at the sizes that fair coins draw
NEGLIGIBLE = 0.01  # sizes with this total probability under fair coins may be missing from a table
LEAST_WEIGHT = 1e-30  # of the largest weight: weights of rare sizes underflow and are raised to it


def banzhaf(table: GameTable, confidence: float) -> Credits:
    """Estimate Banzhaf values by least squares on x − ½, with importance weights if sizes were not drawn by fair coins.

    The constant and K_2, K_3 and K_4 of the size are regressed out. Exact if all coalitions are given. Interval: HC3
    with Student's t; what the regression misses of F counts as noise. Infinite with as many coefficients as coalitions.
    """
    n, y = table.n, table.about_mean.values
    importance = _importance(table, "banzhaf")
    # At most half a degree per distinct size, so that the polynomials never fit every size exactly.
    degree = max(1, min(HIGHEST_DEGREE, len(np.unique(table.sizes)) // 2))
    nuisance = _curvature(table.sizes, n, degree)
    # With two contributors the sum of the slopes is not identified, nor needed: n·2^(1−n) = 1.
    identifiable = n - 1 if n == 2 else n
    parameters = identifiable + nuisance.shape[1]
    table.require(parameters, "banzhaf")
    effective = float(importance.sum() ** 2 / (importance**2).sum())
    if effective < parameters - 1e-6:
        raise UserError(
            f"{table.evaluations} evaluations of {n} contributors: banzhaf needs {parameters} coalitions that count, "
            f"and these count as {effective:.1f}, since fair coins seldom draw most of their sizes; the design 'half' "
            "draws as they do"
        )
    x, weights = table.coalitions.astype(np.float64) - 0.5, table.replicates * importance
    regression = regress(x, nuisance, weights)
    identified = len(regression.information)
    if identified < identifiable:
        raise UserError(
            f"{table.evaluations} evaluations of {n} contributors: banzhaf needs coalitions that distinguish all "
            f"contributors and the constant, at least {identifiable - identified} more"
        )
    fit = regression.fit(ridge=0.0)
    ends = _curvature(np.array([0, n]), n, nuisance.shape[1])
    predicted = fit.linear_map.sum(axis=0) + (ends[1] - ends[0]) @ fit.nuisance_map(x)
    part = ldexp(2.0, -n)
    slopes = fit.linear_map - part * predicted
    degrees = effective - parameters
    known = degrees >= 1
    residuals = fit.residuals(y)
    noise = float(residuals @ residuals) / (len(y) - parameters) if known else 0.0
    deleted = fit.adjusted_residuals(y, table.units, noise, power=1.0)
    influence = unit_sums(slopes * deleted, table.units)
    values = slopes @ y + part * n * table.level
    return _credits(table, "banzhaf", values, influence, noise, confidence, weights, degrees if known else None)


def banzhaf_msr(table: GameTable, confidence: float) -> Credits:
    """Estimate Banzhaf values by maximum sample reuse (Wang and Jia 2023).

    A credit is the mean of F over the coalitions with a contributor minus the mean over those without, with importance
    weights if sizes were not drawn by fair coins, divided by their own sum: a constant added to F changes nothing.

    What other contributors add counts as noise. `banzhaf` removes the linear part of it, but needs several times more
    evaluations than contributors. Exact if all coalitions are given. Interval: the jackknife over units with Student's
    t, too wide for designs that spread members evenly; infinite if a mean is over a single coalition.
    """
    table.require(2, "banzhaf-msr")
    within = table.coalitions.T
    constant = ~within.any(axis=1) | within.all(axis=1)
    if constant.any():
        raise UserError(
            f"{table.evaluations} evaluations of {table.n} contributors: banzhaf-msr needs coalitions with and without "
            f"each; contributor {table.names[int(np.argmax(constant))]} is in all or in none, at least 1 more is needed"
        )
    w = table.replicates * _importance(table, "banzhaf-msr")
    y = table.about_mean.values
    y = y - w @ y / w.sum()
    sums = np.stack([within @ w, ~within @ w])  # (2, n): with the contributor, and without
    means = np.stack([within @ (w * y), ~within @ (w * y)]) / sums
    part = ldexp(2.0, -table.n)
    slopes = np.where(within, w / sums[0][:, None], -w / sums[1][:, None])
    known = min(within.sum(axis=1).min(), (~within).sum(axis=1).min()) > 1
    # Without row j its mean changes by w_j (y_j − mean)/(W − w_j).
    free = np.maximum(1 - np.abs(slopes), LEAST_WEIGHT)
    deviations = np.where(within, y - means[0][:, None], y - means[1][:, None])
    influence = (1 - part) * unit_sums(slopes * deviations / free, table.units)
    values = (1 - part) * (means[0] - means[1]) + part * table.n * table.level
    noise = float(w @ y**2 / w.sum())
    counts = (sums**2 / np.stack([within @ w**2, ~within @ w**2])).sum(axis=0)
    degrees = max(float(counts.min()) - 2, 1.0) if known else None
    return _credits(table, "banzhaf-msr", values, influence, noise, confidence, w, degrees)


def _importance(table: GameTable, method: str) -> FloatArray:
    weights = table.importance("half", f"{method} needs all sizes near {table.n / 2:g}", NEGLIGIBLE)
    return np.maximum(weights, LEAST_WEIGHT * weights.max(initial=0.0))


def _curvature(sizes: IntArray, n: int, highest: int) -> FloatArray:
    """Return (m, highest): 1 and the Krawtchouk polynomials of degree 2, …, highest, of variance 1 under fair coins.

    (d+1) K_{d+1} = u K_d − (n−d+1) K_{d−1}, u = 2s − n, K_0 = 1, K_1 = u; Σ_s C(n,s) 2⁻ⁿ K_d² = C(n,d).
    """
    u = (2 * sizes - n).astype(np.float64)
    polynomials = [np.ones_like(u), u]
    for degree in range(1, highest):
        polynomials.append((u * polynomials[-1] - (n - degree + 1) * polynomials[-2]) / (degree + 1))
    curved = [polynomials[degree] / comb(n, degree) ** 0.5 for degree in range(2, highest + 1)]
    return np.stack([polynomials[0], *curved], axis=1)


def _credits(
    table: GameTable,
    method: str,
    values: FloatArray,
    influence: FloatArray,
    noise: float,
    confidence: float,
    weights: FloatArray,
    degrees: float | None,
) -> Credits:
    endpoints = ldexp(2.0, -table.n) * table.n * endpoint_influence(table, noise)
    return Credits.of(
        table,
        method,
        values,
        np.hstack([influence, endpoints]),
        confidence=confidence,
        degrees=degrees,
        residuals=True,
        diagnostics={
            "sigma": np.inf if degrees is None else noise**0.5,
            "sum": float(values.sum()),
            "effective_evaluations": float(weights.sum() ** 2 / (weights**2 / table.replicates).sum()),
        },
    )
