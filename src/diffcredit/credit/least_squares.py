"""The Shapley value by weighted least squares without shrinkage."""

import numpy as np

from diffcredit.credit.credits import Credits, endpoint_influence, unit_sums
from diffcredit.credit.regression import regress, size_regressors
from diffcredit.credit.table import GameTable
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray


def kernelshap(table: GameTable, confidence: float) -> Credits:
    """Solve the paper's estimator, the constrained least squares of Lundberg and Lee (2017).

    argmin_β Σ_j w_j (F(S_j) − F(∅) − Σ_{i∈S_j} β_i)² subject to Σβ = F(N) − F(∅). With β = level + γ, Σγ = 0, this is
    the least squares of F(S) − line on x̃, where the line runs from F(∅) to F(N) in s/n. Interval: HC3 with Student's
    t, plus the level's variance. The distance of F from the line counts as noise.
    """
    empty, full = float(table.empty.mean()), float(table.full.mean())
    above_line = table.values - empty - table.sizes / table.n * (full - empty)
    return _fit(table, "kernelshap", above_line, np.empty((len(above_line), 0)), 1.0, confidence)


def unshrunk(table: GameTable, confidence: float) -> Credits:
    """Fit F on x̃ by least squares with the size regressed out: credits that one contributor's payout can rest on.

    Unbiased for large tables in any game, and exact if all coalitions are given. Each interval (HC2, Student's t)
    covers for its own contributor, not only on average as the default's do. The price is variance: it needs more
    evaluations than contributors, and several times more than the default for the same error.
    """
    values = table.about_mean.values
    return _fit(table, "unshrunk", values, size_regressors(table.sizes, table.n), 0.5, confidence)


def shapley_weights(table: GameTable) -> FloatArray:
    """Return (m,): each row's importance weight relative to the Shapley kernel, times its replicates.

    Raises UserError if the design never draws some size, since all sizes have the same part in the Shapley value.
    """
    needs = f"the Shapley value needs all sizes from 1 to {table.n - 1}"
    return table.replicates * table.importance("kernel", needs)


def _fit(
    table: GameTable, method: str, values: FloatArray, nuisance: FloatArray, power: float, confidence: float
) -> Credits:
    n, m, p = table.n, len(values), nuisance.shape[1]
    table.require(n - 1 + p, method)
    weights = shapley_weights(table)
    regression = regress(table.centred, nuisance, weights)
    identified = len(regression.information)
    if identified < n - 1:
        raise UserError(
            f"{table.evaluations} evaluations of {n} contributors: {method} needs coalitions that distinguish "
            f"all contributors, at least {n - 1 - identified} more"
        )
    fit = regression.fit(ridge=0.0)
    slopes = fit.linear_map
    contrasts = slopes @ values
    left_over = m - (n - 1) - p
    if left_over > 0:
        noise = float((fit.residuals(values) ** 2).sum()) / left_over
        errors = unit_sums(slopes * fit.adjusted_residuals(values, table.units, noise, power), table.units)
        # x̃ of a complement is −x̃: a pair's difference informs the slopes, its mean about half of the size terms.
        units = errors.shape[1]
        degrees = max(units - (n - 1) - p * units / m, 1.0)
    else:  # as many coefficients as coalitions: only replicates show the noise
        degrees = table.evaluations - m
        noise = float(table.scatter.sum()) / degrees if degrees else 0.0
        errors = slopes * np.sqrt(noise / table.replicates)
    known = degrees > 0
    return Credits.of(
        table,
        method,
        contrasts - contrasts.mean() + table.level,
        np.hstack([errors, endpoint_influence(table, noise)]),
        confidence=confidence,
        degrees=degrees if known else None,
        residuals=left_over > 0,
        diagnostics={
            "sigma": noise**0.5 if known else np.inf,
            "effective_evaluations": float(weights.sum() ** 2 / (weights**2 / table.replicates).sum()),
        },
    )
