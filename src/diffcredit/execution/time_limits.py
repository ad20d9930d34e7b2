"""How long a worker may take until it counts as hung."""

import math
import time

from diffcredit.errors import UserError
from diffcredit.ledger import Evaluation

FACTOR = 10.0  # times the longest answer so far
LEAST = 600.0  # seconds
UNKNOWN = 86_400.0  # seconds, before the first answer
PAUSE = 60.0  # seconds between two readings: a driver that takes longer was paused, and perhaps its workers too


def representative(evaluation: Evaluation) -> bool:
    """Return whether other evaluations may take about as long. A failed one says nothing about them, nor does an
    endpoint, for which some retrainings have nothing to train."""
    return evaluation.status == "done" and len(set(evaluation.coalition)) > 1


class TimeLimits:
    """The time limits of one run, and its clock.

    A limit is ``timeout`` where one is given. Otherwise it is ten times the longest answer of its kind in this run, at
    least ten minutes; a day before the first answer.

    The clock advances only while the driver reads it: at most :data:`PAUSE` seconds between two readings count. If a
    whole run is paused, as by Ctrl-Z, no worker is late afterwards.
    """

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._longest = {"start": 0.0}  # a worker that is up answers at once
        self._read = time.monotonic()
        self.now = 0.0

    def read(self) -> float:
        """Advance the clock and return its seconds."""
        now = time.monotonic()
        self.now += min(now - self._read, PAUSE)
        self._read = now
        return self.now

    def record(self, kind: str, seconds: float) -> None:
        """Record how long an answer of this ``kind`` took."""
        self._longest[kind] = max(seconds, self._longest.get(kind, 0.0))

    def limit(self, kind: str) -> float:
        """Return the seconds after which a worker that owes an answer of this ``kind`` counts as hung."""
        if self._timeout is not None:
            return self._timeout
        return max(LEAST, FACTOR * self._longest[kind]) if kind in self._longest else UNKNOWN


def check_timeout(timeout: float | None) -> None:
    """Refuse a timeout that is not a positive, finite number of seconds."""
    if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
        raise UserError(f"timeout: {timeout}; must be more than 0 seconds")
