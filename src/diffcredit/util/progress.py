"""How long-running work reports its progress."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""``progress(what, done, total)``, called at every step of a stage."""


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
