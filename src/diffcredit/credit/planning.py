"""How to split a budget: few evaluations of many images each, or many of few; short or long fine-tuning.

The variance of a credit is proportional to (A + b/N)/M at M evaluations of N generated images each: A is what
training seeds and interactions add to one value, b/N what comes from having only N images. An evaluation of k
fine-tuning steps costs c_train·k + c_gen·N. Keep N equal in all coalitions: entropies and Inception Scores are
biased in N.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.errors import UserError


@dataclass(frozen=True)
class Costs:
    """What one evaluation takes, in any unit, such as worker seconds: its training (c_train·k and whatever else does
    not depend on the images), and each generated image (c_gen)."""

    training: float
    image: float

    def __post_init__(self) -> None:
        _require_positive(training=self.training, image=self.image)

    def evaluation(self, images: float) -> float:
        """The cost of one evaluation with so many images."""
        return self.training + self.image * images


@dataclass(frozen=True)
class Noise:
    """The variance of one value about the credits' fit: ``between`` trainings (A), and ``per_image`` (b), of which
    b/N is left with N images."""

    between: float
    per_image: float

    def __post_init__(self) -> None:
        _require_not_negative(between=self.between, per_image=self.per_image)

    def variance(self, images: float) -> float:
        """A + b/N."""
        return self.between + self.per_image / images


@dataclass(frozen=True)
class Split:
    """A budget spent on ``evaluations`` (M) of ``images`` each (N). A credit's variance is proportional to
    ``variance``, (A + b/N)/M."""

    images: int
    evaluations: int
    variance: float


def pilot_noise(sigma: float, standard_errors: ArrayLike, images: int) -> Noise:
    """A and b from a pilot of evaluations with N = ``images`` each.

    sigma: the residual standard deviation of one value about the credits' fit (``sigma`` of an estimate's
    diagnostics). standard_errors: (m,), of each value, from bootstrapping its images.
    b = N · mean se², A = sigma² − b/N, not below 0. All coalitions start from the same initial noises, so a part of
    the images' noise is common to all values and not in sigma: b is rather too high.
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
    """The split of ``budget``, in the unit of ``costs``, with the least variance.

    N = √(b·c_train·k / (A·c_gen)), rounded, within what ``least_images`` and ``least_evaluations`` (what the
    estimator needs) leave; then M = budget/(c_train·k + c_gen·N), rounded down.
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
    else:  # all noise is the images': as many as fit, or no noise at all
        ideal = math.inf if noise.per_image > 0 else 0.0
    candidates = {
        int(min(max(images, least_images), most_images))
        for images in ((math.floor(ideal), math.ceil(ideal)) if math.isfinite(ideal) else (most_images,))
    }
    return min((split_of(noise, costs, budget, images) for images in sorted(candidates)), key=lambda s: s.variance)


def split_of(noise: Noise, costs: Costs, budget: float, images: int) -> Split:
    """What ``budget`` buys with so many images an evaluation."""
    _require_positive(budget=budget, images=images)
    evaluations = math.floor(budget / costs.evaluation(images) + 1e-9)
    if evaluations < 1:
        raise UserError(f"budget: {budget:g}; one evaluation of {images} images costs {costs.evaluation(images):g}")
    return Split(images, evaluations, noise.variance(images) / evaluations)


@dataclass(frozen=True)
class Fidelity:
    """How evaluations of ``steps`` fine-tuning steps (k) compare with retraining, from coalitions run both ways.

    A credit by fine-tuning is ``slope`` (λ_k) times the true one plus an error of variance ``misfit`` (ω_k²) that no
    number of evaluations removes. ``noise`` is that of one value at k, ``costs`` that of one evaluation.
    """

    steps: int
    slope: float
    misfit: float
    noise: Noise
    costs: Costs

    def __post_init__(self) -> None:
        _require_positive(steps=self.steps)
        _require_not_negative(misfit=self.misfit)
        if not math.isfinite(self.slope):
            raise UserError(f"slope: {self.slope}; a finite number is accepted")


@dataclass(frozen=True)
class Choice:
    """A number of fine-tuning ``steps`` with the ``split`` of the budget that goes with it, and the squared
    correlation with the true credits to expect."""

    steps: int
    split: Split
    squared_correlation: float


def best_steps(
    fidelities: Sequence[Fidelity],
    spread: float,
    constant: float,
    budget: float,
    *,
    least_images: int = 1,
    least_evaluations: int = 1,
) -> Choice:
    """The steps k that maximise λ_k²V / (λ_k²V + ω_k² + c·σ_k²/M(k)), each with its best split of ``budget``.

    spread: V, the variance of the true credits. constant: c = M·Var(credit)/σ² of the estimator and design, such
    as 6(n−1)/(n+1) for uniform sizes. A k that the budget cannot pay for is left out; all, an error.
    """
    _require_positive(spread=spread, constant=constant)
    choices, reasons = [], []
    for fidelity in fidelities:
        try:
            split = best_split(
                fidelity.noise,
                fidelity.costs,
                budget,
                least_images=least_images,
                least_evaluations=least_evaluations,
            )
        except UserError as error:
            reasons.append(f"{fidelity.steps} steps: {error}")
            continue
        signal = fidelity.slope**2 * spread
        error_variance = fidelity.misfit + constant * split.variance
        share = signal / (signal + error_variance) if signal + error_variance > 0 else 0.0
        choices.append(Choice(fidelity.steps, split, share))
    if not choices:
        raise UserError("; ".join(reasons) or "fidelities: none given; at least one is expected")
    return max(choices, key=lambda choice: choice.squared_correlation)


def signal_to_noise(tau: float, sigma: float, sizes: ArrayLike, n: int) -> float:
    """How much of one value's variance is the contributors' doing, over how much is not.

    τ² · mean of s(n−s)/n over the coalitions' ``sizes`` s, over σ²: with credits of variance τ², a coalition of s out
    of n members differs from another of its size by a variance of τ²·s(n−s)/n, and noise and interactions add σ².
    ``tau`` and ``sigma`` are an estimate's diagnostics. 0 where nothing is told, infinite without noise.
    """
    _require_not_negative(tau=tau, sigma=sigma)
    s = np.asarray(sizes, dtype=np.float64)
    signal = tau**2 * float((s * (n - s) / n).mean())
    return signal / sigma**2 if sigma > 0 else math.inf if signal > 0 else 0.0


def _require_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not (math.isfinite(number) and number > 0):
            raise UserError(f"{name}: {number}; a positive number is accepted")


def _require_not_negative(**numbers: float) -> None:
    for name, number in numbers.items():
        if not (math.isfinite(number) and number >= 0):
            raise UserError(f"{name}: {number}; a number that is not negative is accepted")
