"""KernelSHAP: the constrained weighted least squares of Lundberg and Lee (2017), the reference."""

import numpy as np
from scipy.stats import t as student

from diffcredit.credit.credits import Credits
from diffcredit.credit.regression import deleted_residuals, regress
from diffcredit.credit.table import Table, importance_weights
from diffcredit.errors import UserError


def kernelshap(table: Table, confidence: float) -> Credits:
    """argmin_β Σ_j w_j (F(S_j) − F(∅) − Σ_{i∈S_j} β_i)² subject to Σβ = F(N) − F(∅).

    With β = level + γ, Σγ = 0, this is the least squares of F(S) − line on x̃, where the line runs from F(∅)
    to F(N) in s/n: no Lagrange multiplier and no huge weights. Weights are 1 for sizes drawn from the Shapley
    kernel, importance weights otherwise. Interval: HC3 on rows with Student's t, plus the level's
    variance. The distance of F from the line counts as noise in both, as it is over random coalitions.
    """
    n, m = table.n, len(table.values)
    table.require(n, "kernelshap")
    fit = regress(table.centred, np.empty((m, 0)), importance_weights(table))
    if len(fit.d) < n - 1:
        raise UserError(
            f"{m} evaluations of {n} contributors: kernelshap needs coalitions that tell all contributors "
            f"apart, at least {n - 1 - len(fit.d)} more"
        )
    t = table.sizes / n
    empty, full = float(table.empty.mean()), float(table.full.mean())
    above_line = table.values - empty - t * (full - empty)
    slopes = fit.linear_map(0.0)
    contrasts = slopes @ above_line
    values = contrasts - contrasts.mean() + table.level

    degrees = m - (n - 1)
    residuals = fit.residuals(above_line, 0.0)
    noise = float(residuals @ residuals / degrees)
    deleted = deleted_residuals(residuals, fit.leverages(0.0), noise) / fit.root
    variance = slopes**2 @ deleted**2 + sum(table.endpoint_variances(noise)) / n**2
    standard_error = np.sqrt(variance)
    half = student.ppf((1 + confidence) / 2, degrees) * standard_error
    weights = fit.root**2
    return Credits(
        values=values,
        low=values - half,
        high=values + half,
        standard_error=standard_error,
        method="kernelshap",
        evaluations=m,
        confidence=confidence,
        empty=empty,
        full=full,
        diagnostics={
            "sigma": noise**0.5,
            "effective_evaluations": float(weights.sum() ** 2 / (weights**2).sum()),
        },
    )
