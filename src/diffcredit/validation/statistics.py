"""The statistics of validation: pure functions of arrays."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from diffcredit.errors import UserError


def linear_datamodeling_score(credits: ArrayLike, coalitions: ArrayLike, values: ArrayLike) -> float:
    """The LDS: Spearman's correlation of Σ_{i∈S} credit_i with F(S) over coalitions S, in −1..1.

    credits (n,), coalitions (m, n) booleans, values (m,). NaN when all predictions or all values are equal.
    """
    c, x, y = (
        np.asarray(credits, np.float64),
        np.asarray(coalitions, np.bool_),
        np.asarray(values, np.float64),
    )
    if c.ndim != 1 or x.shape != (*y.shape, *c.shape):
        raise UserError(f"LDS: credits {c.shape}, coalitions {x.shape}, values {y.shape}; expected (n,), (m, n), (m,)")
    for name, array in (("credits", c), ("values", y)):
        if not np.isfinite(array).all():
            raise UserError(f"LDS: {name}[{int(np.argmin(np.isfinite(array)))}] is not a finite number")
    predictions = x @ c
    # Equal sums in another order differ in the last digits; rounding keeps them ties.
    scale = np.abs(c).sum()
    ranks = rankdata(np.round(predictions / scale, 12) if scale > 0 else predictions)
    return _pearson(ranks, rankdata(y))


def bootstrap_interval(
    statistic: Callable[..., float],
    *samples: NDArray[np.generic],
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """The percentile interval of ``statistic(*samples)`` under resampling of the samples' rows, jointly.

    Resamples on which the statistic is undefined (NaN) are left out; NaN when all are.
    """
    count = len(samples[0])
    generator = np.random.Generator(np.random.PCG64(seed))
    draws = np.empty(resamples)
    for index in range(resamples):
        rows = (generator.random(count) * count).astype(np.intp)
        draws[index] = statistic(*(sample[rows] for sample in samples))
    defined = draws[~np.isnan(draws)]
    if defined.size == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _pearson(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    a, b = a - a.mean(), b - b.mean()
    norm = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / norm) if norm > 0 else float("nan")
