"""How long-running work reports its progress, in words for people."""

from collections.abc import Callable, Sequence

Progress = Callable[[str, int, int], None]
"""``progress(what, done, total)``, called at every step of a stage."""

UNITS = (("s", 1), ("min", 60), ("h", 3600), ("day", 86400))


def silent(what: str, done: int, total: int) -> None:
    """Report to nobody."""


def duration(seconds: float) -> str:
    """Return ``45 s``, ``3 min 20 s``, ``2 h 5 min`` or ``3 d 4 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def rates(per_second: Sequence[float | None]) -> list[str]:
    """Return rates in one unit, the shortest of seconds, minutes, hours and days in which the least of them is 1 or
    more: ``12/min``, ``0.4/day``. None, an unknown rate, is empty."""
    least = min((rate for rate in per_second if rate), default=1.0)
    unit, seconds = next((each for each in UNITS if least * each[1] >= 1), UNITS[-1])
    return ["" if rate is None else f"{_rounded(rate * seconds)}/{unit}" for rate in per_second]


def _rounded(value: float) -> str:
    if value >= 10 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.1g}"
