"""The time that evaluations took, from the start and the finish that each of them recorded."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from datetime import datetime

from diffcredit.ledger.records import Evaluation


class Clock:
    """Sums over the evaluations added so far, in whole microseconds, so that the order of adding does not matter."""

    def __init__(self, evaluations: Iterable[Evaluation] = ()) -> None:
        self._worked = self._active = 0
        # the disjoint spans during which evaluations were under way, in order
        self._starts: list[int] = []
        self._ends: list[int] = []
        for evaluation in evaluations:
            self.add(evaluation)

    @property
    def worker_seconds(self) -> float:
        """The durations of all evaluations added up."""
        return self._worked / 1e6

    @property
    def active_seconds(self) -> float:
        """The time during which at least one evaluation was under way: pauses between runs do not count."""
        return self._active / 1e6

    def add(self, evaluation: Evaluation) -> None:
        start = _microseconds(evaluation.started)
        end = max(start, _microseconds(evaluation.finished))
        self._worked += end - start
        # merge the spans that this one touches
        touched = slice(bisect_left(self._ends, start), bisect_right(self._starts, end))
        starts, ends = self._starts[touched], self._ends[touched]
        start, end = min([start, *starts]), max([end, *ends])
        self._active += end - start - (sum(ends) - sum(starts))
        self._starts[touched], self._ends[touched] = [start], [end]


def _microseconds(stamp: str) -> int:
    """Convert an ISO 8601 time to microseconds since 1970."""
    return round(datetime.fromisoformat(stamp).timestamp() * 1e6)
