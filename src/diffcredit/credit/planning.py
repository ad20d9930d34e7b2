"""How to split a budget: few evaluations of many images each, or many evaluations of few.

The variance of a credit is proportional to (A + b/N)/M for M evaluations of N generated images each: A is what training
seeds and interactions add to one value, b/N what comes from having only N images. An evaluation of k fine-tuning steps
costs c_train·k + c_gen·N. N must be equal for all coalitions, since entropies and Inception Scores are biased in N.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.errors import UserError


@dataclass(frozen=True)
class Costs:
    """The cost of one evaluation in any unit, such as worker seconds.

    ``training``: c_train·k and all else that does not depend on the images; ``image``: c_gen, of each generated one.
    """

    training: float
    image: float

    def __post_init__(self) -> None:
        _require_positive(training=self.training, image=self.image)

    def evaluation(self, images: float) -> float:
        """Return the cost of one evaluation with this many images."""
        return self.training + self.image * images


@dataclass(frozen=True)
class Noise:
    """The variance of one value about the credits' fit: ``between`` trainings (A) and ``per_image`` (b)."""

    between: float
    per_image: float

    def __post_init__(self) -> None:
        _require_not_negative(between=self.between, per_image=self.per_image)

    def variance(self, images: float) -> float:
        """Return A + b/N."""
        return self.between + self.per_image / images


@dataclass(frozen=True)
class Split:
    """``evaluations`` (M) of ``images`` each (N); a credit's variance is proportional to ``variance``, (A + b/N)/M."""

    images: int
    evaluations: int
    variance: float


def pilot_noise(sigma: float, standard_errors: ArrayLike, images: int) -> Noise:
    """Estimate A and b from a pilot of evaluations with N = ``images`` each.

    sigma: the residual standard deviation of one value about the credits' fit (``sigma`` in an estimate's diagnostics).
    standard_errors: (m,), of each value, from bootstrapping its images.
    b = N · mean se², A = sigma² − b/N, at least 0. All coalitions start from the same initial noises, so part of the
    images' noise is common to all values and not in sigma: b is rather too high.
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

    N = √(b·c_train·k / (A·c_gen)), rounded, at least ``least_images`` and few enough for ``least_evaluations``.
    Then M = budget/(c_train·k + c_gen·N), rounded down.
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
    """Return what ``budget`` buys with this many images per evaluation."""
    _require_positive(budget=budget, images=images)
    evaluations = math.floor(budget / costs.evaluation(images) + 1e-9)
    if evaluations < 1:
        raise UserError(f"budget: {budget:g}; one evaluation of {images} images costs {costs.evaluation(images):g}")
    return Split(images, evaluations, noise.variance(images) / evaluations)


def signal_to_noise(tau: float, sigma: float, sizes: ArrayLike, n: int) -> float:
    """Return the ratio of the variance of one value that contributors explain to the variance they do not.

    That is τ² · mean of s(n−s)/n over the coalitions' ``sizes`` s, over σ². With credits of variance τ², the values of
    coalitions of s out of n members vary by τ²·s(n−s)/n; noise and interactions add σ². ``tau`` and ``sigma`` are an
    estimate's diagnostics. 0 without signal, infinite without noise.
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
