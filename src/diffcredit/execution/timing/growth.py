"""How long work takes on many things, from how it grows with a few."""

import math
from collections.abc import Callable

FEW = 4
ENOUGH = 5.0  # seconds of work, beyond which more of it is foreseen and not done


def foreseen(seconds_of: Callable[[int], float], size: int) -> float:
    """``seconds_of(size)``: of twice as many again and again, until it is all, or takes long enough to see how it
    grows. With fewer than it can be done with it may raise anything; what it raises with all is raised here."""
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
    except Exception:  # which all of them may not be too few for
        return None


def _grown(before: float | None, seconds: float, times: float) -> float:
    """Of so many ``times`` as many as took ``seconds``, where half of them took ``before`` (None: they are too few).
    Steadily as between these two, or by the same power if that is more; in proportion where nothing else is known."""
    if not before:
        return seconds * times
    slope = max(0.0, 2 * (seconds - before))
    power = max(0.0, math.log2(seconds / before))
    return max(seconds + (times - 1) * slope, seconds * times**power)
