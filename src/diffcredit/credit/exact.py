"""The exact Shapley value, from all coalitions."""

from math import comb

import numpy as np

from diffcredit.coalitions import encode
from diffcredit.coalitions.designs import LARGEST
from diffcredit.credit.credits import Credits, endpoint_influence
from diffcredit.credit.table import GameTable
from diffcredit.errors import UserError


def exact(table: GameTable, confidence: float) -> Credits:
    """Compute φ_i = Σ_{S∋i} F(S)/(n·C(n−1, |S|−1)) − Σ_{S∌i} F(S)/(n·C(n−1, |S|)) over all 2ⁿ coalitions.

    Replicates are averaged, and their pooled variance gives the interval. Without replicates the values are taken as
    exact, and the interval has no width.
    """
    n = table.n
    if n > LARGEST:
        raise UserError(f"exact: {n} contributors; at most {LARGEST} (2^{LARGEST} coalitions)")
    table.require(2**n - 2, f"exact (all 2^{n} − 2 coalitions, {_example(table)} among those missing)")
    joined = np.array([0.0] + [1 / (n * comb(n - 1, size - 1)) for size in range(1, n)])
    left = np.array([1 / (n * comb(n - 1, size)) for size in range(n)])
    slopes = np.where(table.coalitions, joined[table.sizes][:, None], -left[table.sizes][:, None]).T
    degrees = table.evaluations - len(table.values) + sum(len(e) - 1 for e in (table.empty, table.full))
    spread = table.scatter.sum() + sum(((e - e.mean()) ** 2).sum() for e in (table.empty, table.full))
    noise = float(spread / degrees) if degrees else 0.0
    return Credits.of(
        table,
        "exact",
        slopes @ table.values + table.level,
        np.hstack([slopes * np.sqrt(noise / table.replicates), endpoint_influence(table, noise)]),
        confidence=confidence,
        degrees=degrees or np.inf,
        diagnostics={"sigma": noise**0.5},
    )


def _example(table: GameTable) -> str:
    """Return a coalition that is missing from the table, if there is one."""
    codes = set((table.coalitions @ (1 << np.arange(table.n))).tolist())
    missing = next((code for code in range(1, 2**table.n - 1) if code not in codes), 0)
    return encode(missing >> np.arange(table.n) & 1)
