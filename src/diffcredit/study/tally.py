"""Counts of a recipe's evaluations, updated one by one so that a long ledger is read only once."""

from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import datetime

from diffcredit.ledger import Evaluation
from diffcredit.ledger.clock import Clock, active_seconds, worker_seconds
from diffcredit.util.sanitize import last_line

RECENT = 50  # evaluations that the present rate is measured on
DESIGN = ("estimate", "endpoint")  # the purposes of a schedule's tasks


@dataclass
class WorkerTally:
    """A worker's evaluations: how many, the seconds of those done, and when the last one finished."""

    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    last_finish: float = 0.0


@dataclass
class Tally:
    """Counts of a recipe's evaluations.

    ``done`` and ``failed`` are by purpose. ``attempted`` holds the design's tasks. ``errors`` are counted by their last
    lines, those of single values as ``property: error``.
    """

    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    attempted: set[tuple[str, int]] = field(default_factory=set)
    errors: Counter[str] = field(default_factory=Counter)
    workers: dict[str, WorkerTally] = field(default_factory=dict)
    done_seconds: float = 0.0
    clock: Clock = field(default_factory=Clock)
    design_clock: Clock = field(default_factory=Clock)
    recent: deque[Evaluation] = field(default_factory=lambda: deque(maxlen=RECENT))
    finishes: deque[float] = field(default_factory=deque)

    def add(self, evaluation: Evaluation) -> None:
        seconds, finish = worker_seconds([evaluation]), datetime.fromisoformat(evaluation.finished).timestamp()
        worker = self.workers.setdefault(evaluation.worker, WorkerTally())
        worker.last_finish = max(worker.last_finish, finish)
        self.clock.add(evaluation)
        if evaluation.purpose in DESIGN:
            self.design_clock.add(evaluation)
        if evaluation.purpose == "estimate":
            self.attempted.add(evaluation.key)
        if evaluation.status == "done":
            self.done[evaluation.purpose] += 1
            self.done_seconds += seconds
            self.recent.append(evaluation)
            self.finishes.append(finish)
            worker.done += 1
            worker.seconds += seconds
        else:
            self.failed[evaluation.purpose] += 1
            self.errors[last_line(evaluation.error)] += 1
            worker.failed += 1
        for value in evaluation.values:
            if value.error is not None:
                self.errors[f"{value.property}: {last_line(value.error)}"] += 1

    def lately(self, now: float, window: float) -> int:
        """Return how many were done within the last ``window`` seconds, and forget the earlier ones."""
        while self.finishes and self.finishes[0] < now - window:
            self.finishes.popleft()
        return sum(now - window <= finish <= now for finish in self.finishes)

    @property
    def rate(self) -> float | None:
        """Evaluations per second over the last :data:`RECENT`, without pauses; None for fewer than two."""
        elapsed = active_seconds(self.recent)
        return len(self.recent) / elapsed if len(self.recent) > 1 and elapsed > 0 else None

    @property
    def overall(self) -> float | None:
        """Evaluations per second over all of them, without pauses."""
        count, seconds = self.done.total(), self.clock.active_seconds
        return count / seconds if count and seconds > 0 else None
