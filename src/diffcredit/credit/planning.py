"""How to spend a budget: signal and noise from a pilot, how many evaluations that asks for, images per evaluation.

A pilot evaluates k coalitions of one size, coalition i with r_i seeds: one-way analysis of variance with random
effects, value = mean + coalition (variance σ_b²) + seed (variance σ_w²).

The variance of a credit is proportional to (A + b/N)/M for M evaluations of N generated images each: A is what training
seeds and interactions add to one value, b/N what comes from having only N images. An evaluation of k fine-tuning steps
costs c_train·k + c_gen·N. N must be equal for all coalitions, since entropies and Inception Scores are biased in N.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import fdtri, ndtri

from diffcredit.coalitions import size_probabilities
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray

CONFIDENCE = 0.9
FARTHEST = 1e12  # a larger ratio of variances counts as infinite


@dataclass(frozen=True)
class Pilot:
    """One property's noise and signal, in its own unit.

    Standard deviations: ``within``, between seeds of one coalition; ``between`` coalitions, corrected for the seeds, at
    least 0; ``images``, due to the generated images (their bootstrap standard errors), None if not known. ``ratio`` is
    between² / within² with its 90 % interval from ``low`` to ``high``, exact for normal values.
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
    """Analyse k ``groups``, each the values of one coalition, given their standard errors if there are any.

    Raises UserError for fewer than two coalitions, or if none has two values.
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

    With mean squares MS_b, MS_w and m = Σ r_i: σ_w² = MS_w, σ_b² = (MS_b − MS_w)/r̃, r̃ = (m − Σ r_i²/m)/(k − 1).
    """
    sizes, means, within = _moments(groups)
    total = sizes.sum()
    mean_square = float(sizes @ (means - sizes @ means / total) ** 2) / (len(groups) - 1)
    return (mean_square - within) / float((total - (sizes**2).sum() / total) / (len(groups) - 1)), within


def ratio_interval(groups: Sequence[FloatArray], confidence: float) -> tuple[float, float]:
    """Return the interval of θ = σ_b²/σ_w² that covers with exactly this probability if values are normal (Wald 1940).

    With w_i = r_i/(1 + r_i θ), Q(θ) = Σ w_i (ȳ_i − Σ w_j ȳ_j/Σ w_j)² / ((k − 1) MS_w) is F-distributed with k − 1 and
    m − k degrees of freedom at the true θ, and falls with θ. Negative ends are set to 0.
    """
    sizes, means, within = _moments(groups)
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


def _moments(groups: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray, float]:
    """Return the groups' numbers of values (k,), their means (k,), and MS_w, the mean square of values about these."""
    sizes, means = np.array([len(group) for group in groups]), np.array([group.mean() for group in groups])
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    return sizes, means, squares / (sum(map(len, groups)) - len(groups))


def evaluations_needed(ratio: float, size: int, n: int, design: str, correlation: float) -> float:
    """Predict how many evaluations give a ``correlation`` with the exact credits, with a probability of 85 %.

    ratio: the pilot's, for coalitions of ``size`` out of n members. With additive credits of variance τ², coalitions of
    size s differ by σ_b² = τ² s(n−s)/n. Credits from M evaluations have an error variance of c·σ_w²/M,
    c = n(n−1)/E[s(n−s)] over the sizes of ``design``, and shrunken ones correlate by ρ² = τ²/(τ² + c·σ_w²/M), so
    M = c·(σ_w²/τ²)·ρ²/(1 − ρ²). To have ρ with 85 %, tanh(atanh ρ + z₀.₈₅/√(n − 3)) must be expected. Interactions are
    signal in the pilot but noise to the credits, so M is rather too low.
    """
    if ratio <= 0:
        return math.inf
    expected = math.tanh(math.atanh(correlation) + float(ndtri(0.85)) / math.sqrt(max(n - 3, 1)))
    sizes = np.arange(1, n)
    constant = n * (n - 1) / float(size_probabilities(design, n) @ (sizes * (n - sizes)))
    spread = ratio / (size * (n - size) / n)  # τ²/σ_w²
    return constant / spread * expected**2 / (1 - expected**2)


@dataclass(frozen=True)
class Costs:
    """The cost of one evaluation in any unit: ``training``, all that does not depend on the images, and ``image``."""

    training: float
    image: float

    def __post_init__(self) -> None:
        _require_positive(training=self.training, image=self.image)

    def evaluation(self, images: float) -> float:
        return self.training + self.image * images


@dataclass(frozen=True)
class Noise:
    """The variance of one value about the credits' fit: ``between`` trainings (A) and ``per_image`` (b)."""

    between: float
    per_image: float

    def __post_init__(self) -> None:
        _require_not_negative(between=self.between, per_image=self.per_image)

    def variance(self, images: float) -> float:
        return self.between + self.per_image / images


@dataclass(frozen=True)
class Split:
    """``evaluations`` (M) of ``images`` each (N); a credit's variance is proportional to ``variance``, (A + b/N)/M."""

    images: int
    evaluations: int
    variance: float


def pilot_noise(sigma: float, standard_errors: ArrayLike, images: int) -> Noise:
    """Estimate A = sigma² − b/N, at least 0, and b = N · mean se² from evaluations with N = ``images`` each.

    sigma: the residual standard deviation of one value about the credits' fit (an estimate's diagnostic).
    standard_errors: (m,), of each value, from bootstrapping its images. All coalitions start from the same initial
    noises, so part of the images' noise is common to all values and not in sigma: b is rather too high.
    """
    errors = np.asarray(standard_errors, dtype=np.float64)
    if errors.ndim != 1 or len(errors) == 0 or not np.isfinite(errors).all() or (errors < 0).any():
        raise UserError(f"standard errors of shape {errors.shape}: expected at least one, none negative or infinite")
    _require_not_negative(sigma=sigma)
    _require_positive(images=images)
    from_images = float((errors**2).mean())
    return Noise(between=max(0.0, sigma**2 - from_images), per_image=images * from_images)


def best_split(
    noise: Noise, costs: Costs, budget: float, *, least_images: int = 1, least_evaluations: int = 1
) -> Split:
    """Return the split of ``budget``, in the unit of ``costs``, with the smallest variance.

    N = √(b·c_train·k / (A·c_gen)), at least ``least_images`` and few enough for ``least_evaluations``; M is what fits.
    """
    _require_positive(budget=budget, least_images=least_images, least_evaluations=least_evaluations)
    most_images = math.floor((budget / least_evaluations - costs.training) / costs.image + 1e-9)
    if most_images < least_images:
        needed = least_evaluations * costs.evaluation(least_images)
        raise UserError(
            f"budget: {budget:g}; {least_evaluations} evaluations of {least_images} images cost {needed:g}, and fewer "
            "are not accepted"
        )
    if noise.between > 0:
        ideal = math.sqrt(noise.per_image * costs.training / (noise.between * costs.image))
    else:  # all noise comes from the images: as many as fit, unless there is no noise
        ideal = math.inf if noise.per_image > 0 else 0.0
    candidates = {
        int(min(max(images, least_images), most_images))
        for images in ((math.floor(ideal), math.ceil(ideal)) if math.isfinite(ideal) else (most_images,))
    }
    return min((split_of(noise, costs, budget, images) for images in sorted(candidates)), key=lambda s: s.variance)


def split_of(noise: Noise, costs: Costs, budget: float, images: int) -> Split:
    _require_positive(budget=budget, images=images)
    evaluations = math.floor(budget / costs.evaluation(images) + 1e-9)
    if evaluations < 1:
        raise UserError(f"budget: {budget:g}; one evaluation of {images} images costs {costs.evaluation(images):g}")
    return Split(images, evaluations, noise.variance(images) / evaluations)


def signal_to_noise(tau: float, sigma: float, sizes: ArrayLike, n: int) -> float:
    """Return the ratio of the variance of one value that contributors explain to the variance they do not.

    That is τ² · mean of s(n−s)/n over the coalitions' ``sizes`` s, over σ² (noise and interactions); ``tau`` and
    ``sigma`` are an estimate's diagnostics. 0 without signal, infinite without noise.
    """
    _require_not_negative(tau=tau, sigma=sigma)
    s = np.asarray(sizes, dtype=np.float64)
    signal = tau**2 * float((s * (n - s) / n).mean())
    return signal / sigma**2 if sigma > 0 else math.inf if signal > 0 else 0.0


def _require_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not 0 < number < math.inf:
            raise UserError(f"{name}: {number}; a positive number is accepted")


def _require_not_negative(**numbers: float) -> None:
    for name, number in numbers.items():
        if not 0 <= number < math.inf:
            raise UserError(f"{name}: {number}; a number that is not negative is accepted")
