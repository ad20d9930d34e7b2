"""How long a worker may take for its answer."""

import math
import time

from diffcredit.errors import UserError
from diffcredit.ledger import Evaluation

AMPLE = 10.0  # times what the longest has taken
LEAST = 600.0  # seconds
UNKNOWN = 86_400.0  # seconds, before any has finished
AWAY = 60.0  # seconds between two looks: a driver that takes longer was paused, and its workers perhaps with it


def time_limit(timeout: float | None, longest: float | None) -> float:
    """Seconds after which a worker counts as hung: ``timeout`` where one is given; or else ten times the ``longest``
    that an answer of its kind has taken in this run, at least ten minutes; a day where there was none yet (None)."""
    if timeout is not None:
        return timeout
    return UNKNOWN if longest is None else max(LEAST, AMPLE * longest)


def representative(evaluation: Evaluation) -> bool:
    """Whether others may take about as long: neither one that failed, nor an endpoint, for which some retrainings have
    nothing to train."""
    return evaluation.status == "done" and len(set(evaluation.coalition)) > 1


class Watch:
    """Times what workers do by a clock that only goes on while the driver looks at it: of the time between two looks
    at most :data:`AWAY` counts, so that a run that was paused as a whole, as by Ctrl-Z, finds nobody late."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._longest: dict[str, float | None] = {}
        self._looked = time.monotonic()
        self.now = 0.0

    def look(self) -> float:
        """Seconds by this clock."""
        now = time.monotonic()
        self.now += min(now - self._looked, AWAY)
        self._looked = now
        return self.now

    def note(self, kind: str, seconds: float) -> None:
        """An answer of this ``kind`` took so long."""
        self._longest[kind] = max(seconds, self._longest.get(kind) or 0.0)

    def limit(self, kind: str) -> float:
        """Seconds that an answer of this ``kind`` may take."""
        return time_limit(self._timeout, self._longest.get(kind))


def check_timeout(timeout: float | None) -> None:
    """Refuses what is no time."""
    if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
        raise UserError(f"timeout: {timeout}; must be more than 0 seconds")
