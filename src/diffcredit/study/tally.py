"""The counts behind a status, followed step by step so that a long ledger and a long log are read only once."""

import json
import os
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from diffcredit.ledger import Evaluation
from diffcredit.ledger.clock import Clock
from diffcredit.util.sanitize import last_line

RECENT = 50  # evaluations that the present rate is measured on
DESIGN = ("estimate", "endpoint", "reference")  # the purposes of a schedule's tasks
LOG_NAME = "log.jsonl"  # in the study's results folder
FIRST_BYTES = 4_000_000  # how much of the log's end is read at first


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
    lines, those of single values as ``property: error``. ``mark`` is the place in the ledger up to which it counts.
    """

    mark: int = 0
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
        seconds, finish = Clock([evaluation]).worker_seconds, datetime.fromisoformat(evaluation.finished).timestamp()
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
        elapsed = Clock(self.recent).active_seconds
        return len(self.recent) / elapsed if len(self.recent) > 1 and elapsed > 0 else None

    @property
    def overall(self) -> float | None:
        """Evaluations per second over all of them, without pauses."""
        count, seconds = self.done.total(), self.clock.active_seconds
        return count / seconds if count and seconds > 0 else None


class TaskLog:
    """The log that a study's drivers append to, followed to learn which worker has which task: claims name only the
    driver."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode, self._offset = 0, 0
        self._assigned: dict[tuple[str, int], tuple[str, float]] = {}

    def assigned(self) -> dict[tuple[str, int], tuple[str, float]]:
        """Return the worker that has each task, (coalition, replicate), and since when, in seconds since 1970."""
        with suppress(OSError):
            for line in self._new_lines():
                self._take(line)
        return self._assigned

    def _new_lines(self) -> list[bytes]:
        """Return the complete lines that were appended since the last call; after a rotation, those of the new file."""
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode:
                self._inode, self._offset = status.st_ino, max(0, status.st_size - FIRST_BYTES)
            file.seek(self._offset)
            whole, newline, _ = file.read(max(0, status.st_size - self._offset)).rpartition(b"\n")
        self._offset += len(whole + newline)
        return whole.split(b"\n")

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            if entry["event"] == "task given":
                task = entry["coalition"], int(entry["replicate"])
                self._assigned[task] = str(entry["worker"]), datetime.fromisoformat(entry["time"]).timestamp()
            elif "coalition" in entry:  # answered, recorded, or its worker is lost
                self._assigned.pop((entry["coalition"], entry["replicate"]), None)
        except (
            ValueError,
            KeyError,
            TypeError,
            OverflowError,
            RecursionError,
        ):  # half a line, or not written by diffcredit
            return
