"""The Shapley value itself, from every coalition."""

from math import comb

import numpy as np
from scipy.stats import t as student

from diffcredit.coalitions import encode
from diffcredit.credit.credits import Credits
from diffcredit.credit.table import Table
from diffcredit.errors import UserError


def exact(table: Table, confidence: float) -> Credits:
    """φ_i = Σ_{S∋i} F(S)/(n·C(n−1, |S|−1)) − Σ_{S∌i} F(S)/(n·C(n−1, |S|)), over all 2ⁿ coalitions.

    Coalitions may come in any order; replicates are averaged, and their pooled variance gives the interval.
    Without any replicate the table is taken as the game itself, and the interval has no width.
    """
    n, m = table.n, len(table.values)
    table.require(2**n - 2, f"exact (all 2^{n} − 2 coalitions)")
    codes = np.concatenate(
        [[0] * len(table.empty), table.coalitions @ (1 << np.arange(n)), [2**n - 1] * len(table.full)]
    )
    outcomes = np.concatenate([table.empty, table.values, table.full])
    replicates = np.bincount(codes, minlength=2**n)
    if (replicates == 0).any():
        missing = np.flatnonzero(replicates == 0)
        example = encode(missing[0] >> np.arange(n) & 1)
        raise UserError(f"coalitions: {len(missing)} of 2^{n} − 2 are missing, {example} among them; exact needs all")
    means = np.bincount(codes, outcomes) / replicates

    coalitions = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.bool_)
    sizes = coalitions.sum(axis=1)
    joined = np.array([0.0] + [1 / (n * comb(n - 1, size - 1)) for size in range(1, n + 1)])
    left = np.array([1 / (n * comb(n - 1, size)) for size in range(n)] + [0.0])
    slopes = np.where(coalitions, joined[sizes][:, None], -left[sizes][:, None]).T
    values = slopes @ means

    degrees = len(outcomes) - 2**n
    noise = float(((outcomes - means[codes]) ** 2).sum() / degrees) if degrees else 0.0
    standard_error = np.sqrt(noise * (slopes**2 @ (1 / replicates)))
    half = student.ppf((1 + confidence) / 2, degrees) * standard_error if degrees else standard_error
    return Credits(
        values=values,
        low=values - half,
        high=values + half,
        standard_error=standard_error,
        method="exact",
        evaluations=m,
        confidence=confidence,
        empty=float(table.empty.mean()),
        full=float(table.full.mean()),
        diagnostics={"sigma": noise**0.5},
    )
