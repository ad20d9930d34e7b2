"""Intervals of shares, which are ratios of two estimates."""

import numpy as np

from diffcredit.util.arrays import FloatArray


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
