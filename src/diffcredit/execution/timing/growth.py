"""Extrapolate how long work takes from smaller amounts of it."""

import math
from collections.abc import Callable

FEW = 4
ENOUGH = 5.0  # seconds of work; if it takes longer, the rest is extrapolated


def extrapolate(seconds_of: Callable[[int], float], size: int) -> float:
    """Estimate ``seconds_of(size)``.

    Sizes are doubled until ``size`` is reached or the work takes long enough to show how it grows. Sizes that are too
    small may raise anything; what ``seconds_of(size)`` itself raises is raised here.
    """
    before, count = None, min(FEW, size)
    while count < size:
        seconds = _tried(seconds_of, count)
        if seconds is not None and seconds > ENOUGH:
            before = _tried(seconds_of, count // 2) if before is None else before
            return _grown(before, seconds, size / count)
        before, count = seconds, min(2 * count, size)
    return seconds_of(size)


def _tried(seconds_of: Callable[[int], float], count: int) -> float | None:
    try:
        return seconds_of(count)
    except Exception:  # a larger size may work
        return None


def _grown(before: float | None, seconds: float, times: float) -> float:
    """Estimate the time for ``times`` × the work that took ``seconds``, linearly or by power law, whichever is larger.
    Half of it took ``before``; where that is unknown (None), the estimate is proportional."""
    if not before:
        return seconds * times
    slope = max(0.0, 2 * (seconds - before))
    power = max(0.0, math.log2(seconds / before))
    return max(seconds + (times - 1) * slope, seconds * times**power)
