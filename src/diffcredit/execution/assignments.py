"""The tasks of a run as workers are given them: which is next, and what becomes of one whose worker was lost."""

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from diffcredit.events import event
from diffcredit.execution.tasks import Task, failed_evaluation, utc_now
from diffcredit.execution.troubles import Trouble
from diffcredit.ledger import Evaluation

_NO_MORE = object()  # a run's tasks have ended


@dataclass(frozen=True)
class Loss:
    """That a ``worker`` is gone: how, and the reason in words."""

    worker: str
    how: Literal["lost", "timed out"] | Trouble
    reason: str

    @property
    def crowded(self) -> bool:
        """Whether its device did not serve it, be it for memory that others hold or since a GPU is broken."""
        return self.how in ("out of memory", "GPU error")


@dataclass
class Assignment:
    """A task, since when it is under way, and how its workers were lost so far."""

    task: Task
    started: str = field(default_factory=utc_now)
    losses: list[Loss] = field(default_factory=list)

    def given(self, worker: str) -> None:
        self._tell("task given", worker)

    def answered(self, worker: str, seconds: float) -> None:
        self._tell("task answered", worker, seconds=seconds)

    def lost(self, loss: Loss, retries: int) -> Evaluation | None:
        """Counts a worker that was lost over this task: None where it is to be repeated, or else, after so many
        ``retries``, the failed evaluation."""
        self.losses.append(loss)
        if len(self.losses) <= retries:
            self._tell("task repeated", loss.worker, reason=loss.reason)
            return None
        error = f"given up at try {len(self.losses)}: {loss.reason}"
        return failed_evaluation(self.task, error, loss.worker, self.started)

    def crowded_out(self) -> bool:
        """Whether the worker lost just now is the second that its device did not serve: one worker less there may
        help. A third may be the task's own fault."""
        return self.losses[-1].crowded and sum(loss.crowded for loss in self.losses) == 2

    def _tell(self, kind: str, worker: str, **fields: Any) -> None:
        task = self.task
        event(kind, worker=worker, coalition=task.coalition, replicate=task.replicate, purpose=task.purpose, **fields)


class Assignments:
    """The assignments of one run; what is to be repeated comes before what is new."""

    def __init__(self, tasks: Iterable[Task | None]) -> None:
        self._fresh = iter(tasks)
        self._more = True
        self._repeated: deque[Assignment] = deque()

    @property
    def left(self) -> bool:
        """Whether there may be another, now or later."""
        return self._more or bool(self._repeated)

    def next(self) -> Assignment | None:
        """The next one; None: there is none to be had now."""
        if self._repeated:
            return self._repeated.popleft()
        task = next(self._fresh, _NO_MORE) if self._more else _NO_MORE
        if isinstance(task, Task):
            return Assignment(task)
        self._more = task is None
        return None

    def repeat(self, assignment: Assignment) -> None:
        self._repeated.append(assignment)


def tell_loss(loss: Loss, assignment: Assignment | None, seconds: float) -> None:
    """The event of a loss: over which task, and how long the worker had owed its answer."""
    task = {} if assignment is None else vars(assignment.task)
    event(f"worker {loss.how}", level=logging.WARNING, worker=loss.worker, seconds=seconds, reason=loss.reason, **task)
