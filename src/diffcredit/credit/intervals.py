"""Intervals of credits, of their ratios and of ranks."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, stdtrit

from diffcredit.credit.table import IntArray
from diffcredit.util.arrays import FloatArray

DRAWS = 2000  # the coverage of a rank's critical value is then known to half a per cent
EXTREME = 16  # contributors at each end of a draw's errors that are compared with every other first
UNITS = 1024  # sampling units whose normal numbers are held at once
LARGE = 2_000_000  # numbers in an influence from which a normal number for each unit would take most of the time
# A difference and its variance are rounding if they are below these parts of the numbers involved.
LEAST_DIFFERENCE, LEAST_VARIANCE = 1e-9, 1e-12


def half_width(variance: FloatArray, bias: FloatArray, degrees: float, confidence: float) -> FloatArray:
    """Return (n,): half the width of an interval, given its sampling variance and root mean squared bias."""
    # Student's t replaces the normal quantile because the noise's variance is estimated; the bias's is a bound.
    level = (1 + confidence) / 2
    spread = np.sqrt(variance) * stdtrit(degrees, level) / stdtrit(np.inf, level)
    m2 = np.divide(bias**2, spread**2, out=np.zeros_like(variance), where=variance > 0)
    # Without noise only the bias's second moment is known: Chebyshev's inequality, which is also cva's limit.
    return np.where(variance > 0, robust_critical_value(m2, confidence) * spread, bias / np.sqrt(1 - confidence))


def robust_critical_value(m2: ArrayLike, confidence: float = 0.95) -> FloatArray:
    """Return cva(m₂) of Armstrong, Kolesár and Plagborg-Møller (2022), elementwise; cva(0) = 1.96.

    estimate ± cva·(standard deviation) covers with ``confidence`` on average, for any distribution of the normalised
    bias b with E[b²] = ``m2``. With bias b, ± c misses with probability r(b, c) = Φ(−c−b) + Φ(−c+b). The worst
    distribution puts its weight on b = 0 and one other point, or on one point alone.
    """
    second_moment = np.asarray(m2, dtype=np.float64)
    alpha = 1 - confidence

    def excess_coverage(c: FloatArray) -> tuple[FloatArray, FloatArray]:
        t = np.maximum(second_moment, tangent_point(c))
        share, b = second_moment / t, np.sqrt(t)
        # The worst point depends on c, but at a maximum that does not change the derivative.
        slope = 2 * (1 - share) * _normal(c) + share * (_normal(c + b) + _normal(c - b))
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
    """Return r(b, c), the probability that an estimate with bias b, ± c, misses."""
    return ndtr(-c - b) + ndtr(-c + b)


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


def ratio_intervals(
    numerators: FloatArray, half_widths: FloatArray, denominator: float, denominator_half_width: float
) -> tuple[FloatArray, FloatArray]:
    """Return (low, high), (n,) each: Fieller's (1954) intervals of c_i/T for independent errors of c_i (n,) and T.

    With half-widths h_i and h_T they contain all θ with (c − θT)² ≤ h² + θ²h_T². If T is known (h_T = 0), that is c ± h
    divided by T. If T ± h_T contains 0, no ratio can be excluded: −inf, inf.
    """
    if not abs(denominator) > denominator_half_width:
        return np.full_like(numerators, -np.inf), np.full_like(numerators, np.inf)
    # In units of T: θ²(1 − g²) − 2θc + c² − h² = 0.
    c, h, g = numerators / denominator, half_widths / abs(denominator), denominator_half_width / abs(denominator)
    known = np.isfinite(h)
    h = np.where(known, h, 0.0)
    root = np.sqrt(c**2 * g**2 + h**2 * (1 - g**2))
    low, high = (c - root) / (1 - g**2), (c + root) / (1 - g**2)
    return np.where(known, low, -np.inf), np.where(known, high, np.inf)


def rank_intervals(
    values: FloatArray,
    half_width: FloatArray,
    influence: FloatArray,
    bias: FloatArray,
    degrees: float,
    confidence: float,
) -> tuple[IntArray, IntArray]:
    """Return (low, high), (n,) each: the best and the worst rank each contributor may have; 1 is the largest value.

    values, half_width, bias (n,), influence (n, u): as in `Credits`, without the errors that all contributors share.
    A rank counts the positive differences φ_j − φ_i, so intervals that cover all of a contributor's differences at once
    cover its rank (Mogstad, Romano, Shaikh and Wilhelm 2023). low = 1 + the number that are significantly better,
    high = n − the number significantly worse. j is significantly better than i if φ̂_j − φ̂_i > c_i·s_ij, s_ij the
    difference's deviation and c_i the ``confidence`` quantile of max_j |error_j − error_i|/s_ij.

    Errors are drawn from a fixed seed as influence · g + bias · h, g and h standard normal, all over one √(χ²/degrees)
    since the noise's variance is estimated, and scaled so that ± half_width contains ``confidence`` of them. Each
    interval covers for its own contributor, not all at once. Without a finite half-width any rank is possible.
    """
    n = len(values)
    low, high = np.ones(n, dtype=np.intp), np.full(n, n, dtype=np.intp)
    known = np.isfinite(values) & np.isfinite(half_width) & np.isfinite(bias) & np.isfinite(influence).all(axis=1)
    if known.sum() < 2:
        return low, high
    values, half_width, influence, bias = values[known], half_width[known], influence[known], bias[known]
    deviation = np.sqrt(np.einsum("ij,ij->i", influence, influence) + bias**2)
    expected = stdtrit(degrees, (1 + confidence) / 2) * deviation
    scale = np.divide(half_width, expected, out=np.zeros_like(expected), where=expected > 0)
    influence, bias = influence * scale[:, None], bias * scale
    covariance = influence @ influence.T
    np.fill_diagonal(covariance, covariance.diagonal() + bias**2)
    deviations = _difference_deviations(covariance)
    critical = _critical_values(_draw_errors(influence, bias, covariance, degrees), deviations, confidence)
    margin = critical[:, None] * deviations + LEAST_DIFFERENCE * np.abs(values).max()
    gap = values - values[:, None]
    low[known] += (gap > margin).sum(axis=1)
    high[known] -= (gap < -margin).sum(axis=1)
    return low, high


def _difference_deviations(covariance: FloatArray) -> FloatArray:
    """Return (n, n): the deviations s_ij of error_j − error_i; 0 if the two errors are the same."""
    both = covariance.diagonal() + covariance.diagonal()[:, None]
    squared = both - 2 * covariance
    return np.sqrt(np.where(squared > LEAST_VARIANCE * both, squared, 0.0))


def _draw_errors(influence: FloatArray, bias: FloatArray, covariance: FloatArray, degrees: float) -> FloatArray:
    """Return (n, DRAWS): simulated errors of the credits, from their ``covariance`` where units are many."""
    generator = np.random.Generator(np.random.PCG64(0))
    if influence.size > LARGE:
        # rounding may take this from a covariance that is singular, since contrasts sum to 0
        least = LEAST_VARIANCE * float(covariance.diagonal().max())
        factor = np.linalg.cholesky(covariance + least * np.eye(len(bias)))
        errors = factor @ generator.standard_normal((len(bias), DRAWS))
    else:
        errors = bias[:, None] * generator.standard_normal((len(bias), DRAWS))
        for start in range(0, influence.shape[1], UNITS):
            columns = influence[:, start : start + UNITS]
            errors += columns @ generator.standard_normal((columns.shape[1], DRAWS))
    return errors * np.sqrt(degrees / generator.chisquare(degrees, DRAWS)) if np.isfinite(degrees) else errors


def _critical_values(errors: FloatArray, deviations: FloatArray, confidence: float) -> FloatArray:
    """Return (n,): the ``confidence`` quantile over draws (the next higher one) of max_j |error_j − error_i| / s_ij.

    Of each draw, the contributors with the largest and the smallest errors are compared first. No other can exceed the
    bound that follows from the last of these and the smallest s_ij, so all others are compared only where the bound
    leaves open whether they do, and whether that would reach the quantile.
    """
    n, place = len(errors), int(np.ceil((DRAWS - 1) * confidence))
    inverse = np.divide(1.0, deviations, out=np.zeros_like(deviations), where=deviations > 0)
    ends = min(EXTREME, n // 2)
    order = np.argpartition(errors, (ends - 1, n - ends), axis=0)
    extreme = np.concatenate([order[:ends], order[n - ends :]])
    their_errors = np.take_along_axis(errors, extreme, axis=0)
    least, most = their_errors[ends - 1], their_errors[ends]
    critical, by_draw = np.empty(n), np.ascontiguousarray(errors.T)
    for i, error in enumerate(errors):
        largest = (np.abs(their_errors - error) * inverse[i, extreme]).max(axis=0)
        bound = np.maximum(most - error, error - least) * inverse[i].max()
        enough = np.partition(largest, place)[place]
        unsettled = np.flatnonzero((bound > largest) & (bound >= enough))
        others = by_draw[unsettled]
        others -= error[unsettled, None]
        largest[unsettled] = (np.abs(others, out=others) * inverse[i]).max(axis=1)
        critical[i] = np.partition(largest, place)[place]
    return critical
