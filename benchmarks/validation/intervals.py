"""Samples whose correlation is known, and other intervals than the one in use, to compare it with."""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

from diffcredit.credit.correlations import jackknifed_correlation
from diffcredit.validation.statistics.intervals import correlation_interval

FloatArray = NDArray[np.float64]
Interval = tuple[float, float]

WORLDS = ("normal", "ties", "skewed", "heavy tails", "uneven noise")
LEVELS = (0.025, 0.975)


def draw(
    world: str, rho: float, count: int, seeds: int, generator: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Predictions (B,) and values (B, R), whose mean over seeds correlates at ``rho`` with the predictions in the
    normal world, and nearly so in the others; half of what the predictions leave of its variance is the seeds'."""
    said, rest = generator.standard_normal((2, count))
    noise = generator.standard_normal((count, seeds))
    if world == "heavy tails":
        noise = generator.standard_t(3, (count, seeds)) / 3**0.5
    if world == "uneven noise":
        noise = noise * np.exp(0.6 * said - 0.36)[:, None]
    values = rho * said[:, None] + ((1 - rho**2) / 2) ** 0.5 * (rest[:, None] + seeds**0.5 * noise)
    if world == "ties":
        return np.round(said), np.round(values)
    return said, np.exp(0.8 * values) if world == "skewed" else values


def intervals(said: FloatArray, values: FloatArray, rows: NDArray[np.intp]) -> dict[str, Interval]:
    """The 95 % intervals of Spearman's correlation, each way; ``rows`` (resamples, B) are the bootstrap's draws."""
    found = jackknifed_correlation(said, values, "spearman")
    r, count = float(found[0]), len(said)
    shipped = correlation_interval(found, 0.95)
    draws = _resampled(said, values, rows)
    z, quantiles = np.arctanh(r), norm.ppf(LEVELS)
    boot = np.arctanh(np.clip(draws, -0.999, 0.999)).std()
    variance = (1 + r**2 / 2) / (count - 3)
    pulls = found[1:].mean() - found[1:]
    acceleration = (pulls**3).sum() / (6 * (pulls**2).sum() ** 1.5)
    shift = norm.ppf((draws < r).mean() + (draws == r).mean() / 2)
    levels = norm.cdf(shift + (shift + quantiles) / (1 - acceleration * (shift + quantiles)))
    return {
        "Fisher z, jackknife (in use)": (shipped.low, shipped.high),
        "Fisher z, bootstrap": _pair(np.tanh(z + boot * quantiles)),
        "Fisher z, Bonett–Wright": _pair(np.tanh(z + variance**0.5 * quantiles)),
        "percentile bootstrap": _pair(np.quantile(draws, LEVELS)),
        "BCa bootstrap": _pair(np.quantile(draws, levels)),
    }


def _resampled(a: FloatArray, b: FloatArray, rows: NDArray[np.intp]) -> FloatArray:
    """Spearman's correlation of each resample on which there is one."""
    x, y = (rankdata(each[rows], axis=1) - (rows.shape[1] + 1) / 2 for each in (a, b))
    norms = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    return ((x * y).sum(axis=1)[norms > 0]) / norms[norms > 0]


def _pair(bounds: FloatArray) -> Interval:
    return float(bounds[0]), float(bounds[1])
