"""The rules of a run: which task is given out next, how many together, what is repeated after a worker failed."""

import logging
import sys
import warnings
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from diffcredit.errors import DiffcreditWarning
from diffcredit.execution.machine_errors import MachineErrorKind
from diffcredit.execution.tasks import Task, failed_evaluation, utc_now
from diffcredit.ledger import Evaluation
from diffcredit.util.events import event

_NO_MORE = object()  # a run's tasks have ended


@dataclass(frozen=True)
class WorkerFailure:
    """How a ``worker`` failed, and the ``reason`` in words. The worker is not used again, even if it still runs."""

    worker: str
    kind: Literal["lost", "timed out"] | MachineErrorKind
    reason: str

    @property
    def device_failed(self) -> bool:
        """Whether the worker's device is to blame: others hold its memory, or a GPU is broken."""
        return self.kind in ("out of memory", "GPU error")

    def report(self, task: Task | None, seconds: float) -> None:
        """Log the failure: over which task, and how long the worker had taken for it."""
        about = {"worker": self.worker, "seconds": seconds, "reason": self.reason}
        event(f"worker {self.kind}", level=logging.WARNING, **about, **(vars(task) if task else {}))


@dataclass
class Assignment:
    """A task, when it was first given out, the failures of workers that had this task only, and whether the next
    worker is given it ``alone``."""

    task: Task
    started: str = field(default_factory=utc_now)
    failures: list[WorkerFailure] = field(default_factory=list)
    alone: bool = False

    def log(self, kind: str, worker: str, **fields: Any) -> None:
        event(kind, worker=worker, **vars(self.task), **fields)


class TaskQueue:
    """The tasks of one run. Those to be repeated come before new ones."""

    def __init__(self, tasks: Iterable[Task | None]) -> None:
        self._fresh = iter(tasks)
        self._more = True
        self._alone: deque[Assignment] = deque()
        self._repeated: deque[Assignment] = deque()  # may be given with others

    @property
    def open(self) -> bool:
        """Whether there may be another task, now or later."""
        return self._more or bool(self._alone or self._repeated)

    def is_empty(self) -> bool:
        """Look for a first task and return whether there is none, now or later."""
        if first := self.next():
            self.put_back(first)
        return not self.open

    def next(self, among_others: bool = False) -> Assignment | None:
        """Return the next assignment, or the next that may be given ``among_others``; None if none is available now."""
        if self._alone and not among_others:
            return self._alone.popleft()
        if self._repeated:
            return self._repeated.popleft()
        task = next(self._fresh, _NO_MORE) if self._more else _NO_MORE
        if isinstance(task, Task):
            return Assignment(task)
        self._more = task is None
        return None

    def put_back(self, assignment: Assignment) -> None:
        (self._alone if assignment.alone else self._repeated).append(assignment)


class TaskBatch:
    """Assignments that a ``worker`` is given together and answers in order."""

    def __init__(self, worker: str, first: Assignment) -> None:
        self.worker = worker
        self._assignments: list[Assignment] = []
        self._answered = 0
        self.representative = False  # whether other batches may take about as long
        self._add(first)

    @property
    def alone(self) -> bool:
        """Whether its one assignment must not be given with others."""
        return self._assignments[0].alone

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(assignment.task for assignment in self._assignments)

    @property
    def unanswered(self) -> list[Assignment]:
        return self._assignments[self._answered :]

    def fill(self, queue: TaskQueue, most: int) -> None:
        """Add tasks that are available now, up to ``most`` in all."""
        while not self.alone and len(self._assignments) < most and (another := queue.next(among_others=True)):
            self._add(another)

    def answered(self, evaluation: Evaluation, seconds: float) -> None:
        """Count the answer to the next task, ``seconds`` after the batch was given."""
        self._assignments[self._answered].log("task answered", self.worker, seconds=seconds)
        self._answered += 1
        # a failed one says nothing about others' time, nor does an endpoint: some retrainings train nothing for it
        if evaluation.status == "done" and len(set(evaluation.coalition)) > 1:
            self.representative = True

    def failed(self, failure: WorkerFailure, seconds: float, queue: TaskQueue, retries: int) -> list[Evaluation]:
        """Have the unanswered tasks repeated alone; return the failed evaluation of a task without ``retries`` left.
        Which of several tasks the worker failed over is unknown: that costs none of them a retry."""
        for assignment in self.unanswered:
            failure.report(assignment.task, seconds)
            if len(self._assignments) == 1:
                assignment.failures.append(failure)
                if len(assignment.failures) > retries:
                    error = f"given up at try {len(assignment.failures)}: {failure.reason}"
                    return [failed_evaluation(assignment.task, error, failure.worker, assignment.started)]
            assignment.alone = True
            assignment.log("task repeated", failure.worker, reason=failure.reason)
            queue.put_back(assignment)
        return []

    def put_back(self, failure: WorkerFailure, seconds: float, queue: TaskQueue) -> None:
        """Put the tasks back: the worker failed before it was ready, which is no task's fault."""
        for assignment in self.unanswered:
            failure.report(assignment.task, seconds)
            queue.put_back(assignment)

    def device_failed_twice(self) -> bool:
        """Return whether a device has just failed over its one task for the second time: one worker less on that device
        may help. A third time may be the task's own fault. With several tasks, fewer at once are tried first."""
        failed = [each.device_failed for each in self._assignments[0].failures]
        return len(self._assignments) == 1 and failed[-1] and sum(failed) == 2

    def _add(self, assignment: Assignment) -> None:
        assignment.log("task given", self.worker)
        self._assignments.append(assignment)


class BatchLimit:
    """The most tasks that a worker is given at once; falls when memory runs out."""

    def __init__(self) -> None:
        self.most = sys.maxsize

    def lower(self, failure: WorkerFailure, batch: TaskBatch) -> None:
        """If a ``batch`` of several tasks ran out of memory, allow half as many from now on."""
        count = len(batch.tasks)
        if failure.kind == "out of memory" and 0 < count // 2 < self.most:
            self.most = count // 2
            warnings.warn(
                f"out of memory: workers are given {self.most} instead of {count} tasks at once from now on",
                DiffcreditWarning,
                stacklevel=2,
            )
