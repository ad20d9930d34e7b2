"""Where a rising curve of noisy points reaches a level."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import isotonic_regression


def first_reaching(x: Sequence[float], y: Sequence[float], wanted: float) -> float | None:
    """Return the least x at which the non-decreasing least-squares fit of y, joined by straight lines, is ``wanted``.

    None where the fit stays below; the least x where it starts above. Points whose y is not finite are left out, and
    points with the same x are averaged. A concave curve lies above the lines, so the answer errs towards a larger x.
    """
    points = [(a, b) for a, b in zip(x, y, strict=True) if np.isfinite(a) and np.isfinite(b)]
    if not points:
        return None
    places, which, counts = np.unique([a for a, _ in points], return_inverse=True, return_counts=True)
    means = np.bincount(which, [b for _, b in points]) / counts
    level = isotonic_regression(means, weights=counts).x
    reached = np.flatnonzero(level >= wanted - 1e-12)
    if not len(reached):
        return None
    i = int(reached[0])
    if i == 0:
        return float(places[0])
    part = (wanted - level[i - 1]) / (level[i] - level[i - 1])
    return float(places[i - 1] + part * (places[i] - places[i - 1]))
