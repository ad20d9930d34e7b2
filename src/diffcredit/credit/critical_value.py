"""Critical values of robust empirical-Bayes intervals (Armstrong, Kolesár and Plagborg-Møller 2022)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from diffcredit.util.arrays import FloatArray


def robust_critical_value(m2: ArrayLike, confidence: float = 0.95) -> FloatArray:
    """Return cva(m₂): the c for which estimate ± c·(standard deviation) covers with ``confidence`` on average.

    It does so for any distribution of the normalised bias b with E[b²] = ``m2``. Elementwise; cva(0) = 1.96. With bias
    b, ± c misses with probability r(b, c) = Φ(−c−b) + Φ(−c+b). The worst distribution puts its weight on b = 0 and one
    other point, or on one point alone.
    """
    second_moment = np.asarray(m2, dtype=np.float64)
    alpha = 1 - confidence

    def excess_coverage(c: FloatArray) -> tuple[FloatArray, FloatArray]:
        t = np.maximum(second_moment, tangent_point(c))
        share, b = second_moment / t, np.sqrt(t)
        # The worst point depends on c, but at a maximum that does not change the derivative.
        slope = (1 - share) * _density(0.0, c) + share * _density(b, c)
        return alpha - (1 - share) * _noncoverage(0.0, c) - share * _noncoverage(b, c), slope

    # Chebyshev: E[(b + noise)²] = m2 + 1, so ± √((m2 + 1)/α) always covers.
    return _root(excess_coverage, np.zeros_like(second_moment), np.sqrt((second_moment + 1) / alpha))


def tangent_point(c: FloatArray) -> FloatArray:
    """Return t₀ = b₀², where the chord from (0, r(0)) touches r over t = b²: r(b₀) − r(0) = b₀/2 · r′(b₀).

    r is first convex in t (for c > √3), then concave. Its least concave majorant, the worst non-coverage for a given
    E[t], is the chord up to t₀ and r itself beyond.
    """

    def above_chord(b: FloatArray) -> tuple[FloatArray, FloatArray]:
        near, far = _normal(c - b), _normal(c + b)
        value = _noncoverage(b, c) - _noncoverage(0.0, c) - b / 2 * (near - far)
        return value, (near - far) / 2 - b / 2 * ((c - b) * near + (c + b) * far)

    # Below the lower end the chord and r agree to 1e-9; above the upper end r is flat.
    return _root(above_chord, np.full_like(c, 1e-2), c + 5) ** 2


def _noncoverage(b: FloatArray | float, c: FloatArray) -> FloatArray:
    """r(b, c)."""
    return ndtr(-c - b) + ndtr(-c + b)


def _density(b: FloatArray | float, c: FloatArray) -> FloatArray:
    """−∂r/∂c."""
    return _normal(c + b) + _normal(c - b)


def _normal(z: FloatArray) -> FloatArray:
    return np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


def _root(
    function: Callable[[FloatArray], tuple[FloatArray, FloatArray]], low: FloatArray, high: FloatArray
) -> FloatArray:
    """Return elementwise zeros of an increasing function that is given with its slope.

    Takes Newton's steps if they at least halve the last one and stay between the ends, otherwise bisects.
    """
    x, length = (low + high) / 2, high - low
    for _ in range(200):
        if (length <= 1e-10 * high).all():
            break
        value, slope = function(x)
        low, high = np.where(value <= 0, x, low), np.where(value <= 0, high, x)
        newton = x - np.divide(value, slope, out=np.zeros_like(x), where=slope > 0)
        good = (slope > 0) & (low <= newton) & (newton <= high) & (2 * np.abs(newton - x) <= length)
        x, previous = np.where(good, newton, (low + high) / 2), x
        length = np.where(good, np.abs(x - previous), (high - low) / 2)
    return x
