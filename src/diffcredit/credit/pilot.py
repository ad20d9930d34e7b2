"""Signal and noise from a few pilot evaluations: how much coalitions differ, and how much seeds do.

k coalitions of one size, coalition i evaluated with r_i seeds: one-way analysis of variance with random effects,
value = mean + coalition (variance σ_b²) + seed (variance σ_w²).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import fdtri, ndtri

from diffcredit.coalitions import size_probabilities
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray

CONFIDENCE = 0.9
FARTHEST = 1e12  # a larger ratio of variances counts as infinite


@dataclass(frozen=True)
class Pilot:
    """One property's noise and signal, in its own unit.

    within: standard deviation between seeds of one coalition. between: standard deviation between coalitions, corrected
    for the seeds, at least 0. images: standard deviation due to the generated images (their bootstrap standard errors);
    None if not known. ratio: signal/noise, between² / within², with its 90 % interval from ``low`` to ``high``, which
    is exact for normal values.
    """

    coalitions: int
    evaluations: int
    within: float
    between: float
    images: float | None
    ratio: float
    low: float
    high: float


def read_pilot(groups: Sequence[ArrayLike], standard_errors: ArrayLike = ()) -> Pilot:
    """Analyse k ``groups``, each the values of one coalition. Every value may have a standard error.

    Raises a UserError for fewer than two coalitions, or if none has two values.
    """
    values = [np.asarray(group, dtype=np.float64) for group in groups if np.size(group)]
    count = sum(map(len, values))
    if len(values) < 2 or count == len(values):
        raise UserError(
            f"pilot: {count} values of {len(values)} coalitions; at least two coalitions are needed, and a second seed "
            "of one of them"
        )
    between, within = variance_components(values)
    errors = np.asarray(standard_errors, dtype=np.float64)
    signal = max(0.0, between)
    ratio = signal / within if within > 0 else math.inf if signal > 0 else 0.0
    low, high = ratio_interval(values, CONFIDENCE)
    return Pilot(
        coalitions=len(values),
        evaluations=count,
        within=math.sqrt(within),
        between=math.sqrt(signal),
        images=float(np.sqrt((errors**2).mean())) if len(errors) else None,
        ratio=ratio,
        low=low,
        high=high,
    )


def variance_components(groups: Sequence[FloatArray]) -> tuple[float, float]:
    """Return unbiased estimates of σ_b² and σ_w² (Henderson's; the first may be negative).

    With mean squares MS_b, MS_w and m = Σ r_i: σ_w² = MS_w, σ_b² = (MS_b − MS_w)/r̃, r̃ = (m − Σ r_i²/m)/(k − 1);
    with r seeds each, the variance of the coalitions' means minus σ_w²/r.
    """
    sizes, means = np.array([len(group) for group in groups]), np.array([group.mean() for group in groups])
    total = sizes.sum()
    within = _within(groups)
    mean_square = float(sizes @ (means - sizes @ means / total) ** 2) / (len(groups) - 1)
    return (mean_square - within) / float((total - (sizes**2).sum() / total) / (len(groups) - 1)), within


def ratio_interval(groups: Sequence[FloatArray], confidence: float) -> tuple[float, float]:
    """Return the interval of θ = σ_b²/σ_w² that covers with exactly this probability if values are normal (Wald 1940).

    With w_i = r_i/(1 + r_i θ), Q(θ) = Σ w_i (ȳ_i − Σ w_j ȳ_j/Σ w_j)² / ((k − 1) MS_w) is F-distributed with k − 1 and
    m − k degrees of freedom at the true θ, and falls with θ. With r seeds each: θ = (MS_b/MS_w/F_q − 1)/r. Negative
    ends are set to 0.
    """
    from scipy.optimize import brentq

    sizes, means = np.array([len(group) for group in groups]), np.array([group.mean() for group in groups])
    within = _within(groups)
    if within == 0:
        return (math.inf, math.inf) if np.ptp(means) > 0 else (0.0, math.inf)

    def statistic(theta: float) -> float:
        weights = sizes / (1 + sizes * theta)
        centre = weights @ means / weights.sum()
        return float(weights @ (means - centre) ** 2) / ((len(groups) - 1) * within)

    def solved(quantile: float) -> float:
        if statistic(0.0) <= quantile:
            return 0.0
        if statistic(FARTHEST) >= quantile:
            return math.inf
        return float(brentq(lambda theta: statistic(theta) - quantile, 0.0, FARTHEST, xtol=1e-12, rtol=1e-12))

    degrees = len(groups) - 1, int(sizes.sum()) - len(groups)
    low, high = (fdtri(*degrees, p) for p in ((1 + confidence) / 2, (1 - confidence) / 2))
    return solved(float(low)), solved(float(high))


def _within(groups: Sequence[FloatArray]) -> float:
    """Return MS_w, the mean square of values about their coalition's mean."""
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    return squares / (sum(map(len, groups)) - len(groups))


def evaluations_needed(ratio: float, size: int, n: int, design: str, correlation: float) -> float:
    """Predict how many evaluations give a ``correlation`` with the exact credits, with a probability of 85 %.

    ratio: the pilot's, for coalitions of ``size`` out of n members. If a coalition is worth the sum of its members,
    with credits of variance τ², coalitions of one size s differ by σ_b² = τ² s(n−s)/n. Credits from M evaluations have
    an error variance of c·σ_w²/M, c = n(n−1)/E[s(n−s)] over the sizes of ``design`` (6(n−1)/(n+1) for uniform ones),
    and shrunken ones correlate by ρ² = τ²/(τ² + c·σ_w²/M), so M = c·(σ_w²/τ²)·ρ²/(1 − ρ²). To have ρ with 85 %,
    tanh(atanh ρ + z₀.₈₅/√(n − 3)) must be expected. Interactions count as signal in the pilot but are noise to the
    credits, so M is rather too low.
    """
    if ratio <= 0:
        return math.inf
    expected = math.tanh(math.atanh(correlation) + float(ndtri(0.85)) / math.sqrt(max(n - 3, 1)))
    sizes = np.arange(1, n)
    constant = n * (n - 1) / float(size_probabilities(design, n) @ (sizes * (n - sizes)))
    spread = ratio / (size * (n - size) / n)  # τ²/σ_w²
    return constant / spread * expected**2 / (1 - expected**2)
