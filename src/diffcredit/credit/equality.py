"""A global test of whether contributors differ at all: is F a function of the coalition's size and noise alone?

If all contributors are equal, the residuals r of F after regression on functions of the size are unrelated to
membership. The statistic ‖X̃ᵀ r‖² sums, over contributors, the squared covariance of their membership with r; X̃ has the
membership indicators, centred within sizes and residualised against the same functions. Its null distribution comes
from random signs: each sampling unit (a coalition and its complement) keeps the size of its residual and gets a random
sign, so that noise may differ by size (the wild bootstrap, with residuals divided by √(1 − leverage)). The test needs
no estimate of credits, and works with fewer evaluations than contributors.
"""

import numpy as np

from diffcredit.credit.credits import unit_sums
from diffcredit.credit.regression import size_regressors
from diffcredit.credit.table import GameTable
from diffcredit.util.arrays import FloatArray

DRAWS = 1999
BLOCK = 100  # draws at once, whose signs take little memory
MANY, MANY_EACH = 5_000, 30  # units, in all and for each contributor, of which a sum with random signs is normal
LEAST_FREE = 1e-8  # a residual with less of its own noise than this part is rounding


def equality_p(table: GameTable) -> float:
    """Return the p-value of "all contributors are equal"; 1 where there are too few evaluations to ask.

    (1 + the number of draws at least as large as the statistic) / (1 + draws), from a fixed seed.
    """
    if len(table.values) == 0:
        return 1.0
    basis, _ = np.linalg.qr(size_regressors(table.sizes, table.n))
    table = table.about_mean  # whose regressors are not kept
    x, r = (each - basis @ (basis.T @ each) for each in (table.centred, table.values))
    free = 1 - (basis**2).sum(axis=1)
    adjusted = np.where(free > LEAST_FREE, r / np.sqrt(np.maximum(free, LEAST_FREE)), 0.0)
    observed = float((x.T @ r) @ (x.T @ r))
    drawn = _squared_norms(x * adjusted[:, None], table.units)
    return float(1 + (drawn >= observed * (1 - 1e-9)).sum()) / (1 + DRAWS)


def _squared_norms(rows: FloatArray, units: np.ndarray) -> FloatArray:
    """Return (DRAWS,): ‖Σ_u ±(the unit's rows)‖² for random signs, or for normal sums where there are many units."""
    generator = np.random.Generator(np.random.PCG64(0))
    count, found = int(units.max()) + 1, []
    if count >= max(MANY, MANY_EACH * rows.shape[1]):
        sums = unit_sums(rows.T, units)
        return generator.standard_normal((DRAWS, len(sums))) ** 2 @ np.linalg.eigvalsh(sums @ sums.T)
    for start in range(0, DRAWS, BLOCK):
        signs = generator.choice([-1.0, 1.0], size=(min(BLOCK, DRAWS - start), count))
        found.append(((signs[:, units] @ rows) ** 2).sum(axis=1))
    return np.concatenate(found)
