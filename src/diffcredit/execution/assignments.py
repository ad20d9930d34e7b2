"""The tasks of a run as workers are given them: which are next, how many at once, and what becomes of those whose
worker was lost."""

import logging
import sys
import warnings
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from diffcredit.errors import DiffcreditWarning
from diffcredit.execution.tasks import Task, failed_evaluation, utc_now
from diffcredit.execution.time_limits import representative
from diffcredit.execution.troubles import Trouble
from diffcredit.ledger import Evaluation
from diffcredit.util.events import event

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
    """A task, since when it is under way, how the workers that had nothing else were lost so far, and whether the next
    one is given it ``alone``."""

    task: Task
    started: str = field(default_factory=utc_now)
    losses: list[Loss] = field(default_factory=list)
    alone: bool = False

    def given(self, worker: str) -> None:
        self._tell("task given", worker)

    def answered(self, worker: str, seconds: float) -> None:
        self._tell("task answered", worker, seconds=seconds)

    def lost(self, loss: Loss, retries: int) -> Evaluation | None:
        """Counts a worker that was lost over this task: None where it is to be repeated, or else, after so many
        ``retries``, the failed evaluation."""
        self.losses.append(loss)
        if len(self.losses) <= retries:
            self.lost_among_others(loss)
            return None
        error = f"given up at try {len(self.losses)}: {loss.reason}"
        return failed_evaluation(self.task, error, loss.worker, self.started)

    def lost_among_others(self, loss: Loss) -> None:
        """A worker was lost over this task or another, which repeating it alone will tell."""
        self.alone = True
        self._tell("task repeated", loss.worker, reason=loss.reason)

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
        self._alone: deque[Assignment] = deque()
        self._repeated: deque[Assignment] = deque()  # beside others

    @property
    def left(self) -> bool:
        """Whether there may be another, now or later."""
        return self._more or bool(self._alone or self._repeated)

    def next(self, among_others: bool = False) -> Assignment | None:
        """The next one, or the next that may be given ``among_others``; None: there is none to be had now."""
        if self._alone and not among_others:
            return self._alone.popleft()
        if self._repeated:
            return self._repeated.popleft()
        task = next(self._fresh, _NO_MORE) if self._more else _NO_MORE
        if isinstance(task, Task):
            return Assignment(task)
        self._more = task is None
        return None

    def repeat(self, assignment: Assignment) -> None:
        (self._alone if assignment.alone else self._repeated).append(assignment)


class Bundle:
    """Assignments that a ``worker`` is given together, and answers in their order."""

    def __init__(self, worker: str, first: Assignment) -> None:
        self.worker = worker
        self._assignments: list[Assignment] = []
        self._answered = 0
        self.representative = False  # whether others may take about as long: one of its evaluations says so
        self._add(first)

    @property
    def alone(self) -> bool:
        """Whether its one assignment is given to nobody who has others."""
        return self._assignments[0].alone

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(assignment.task for assignment in self._assignments)

    @property
    def unanswered(self) -> list[Assignment]:
        return self._assignments[self._answered :]

    def fill(self, todo: Assignments, most: int) -> None:
        """Adds what is to be had now, until there are ``most``; one that is given alone stays so."""
        while not self.alone and len(self._assignments) < most and (another := todo.next(among_others=True)):
            self._add(another)

    def answered(self, evaluation: Evaluation, seconds: float) -> None:
        """The next one is, so many ``seconds`` after all were given."""
        self._assignments[self._answered].answered(self.worker, seconds)
        self._answered += 1
        self.representative = self.representative or representative(evaluation)

    def lost(self, loss: Loss, seconds: float, todo: Assignments, retries: int) -> list[Evaluation]:
        """Repeats what the worker owed when it was lost; the failed evaluation of one that has used up its
        ``retries``. Over which of several it was lost nobody knows: that costs none of them a try."""
        failures = []
        for assignment in self.unanswered:
            tell_loss(loss, assignment, seconds)
            if len(self._assignments) > 1:
                assignment.lost_among_others(loss)
            elif failure := assignment.lost(loss, retries):
                failures.append(failure)
                continue
            todo.repeat(assignment)
        return failures

    def put_back(self, loss: Loss, seconds: float, todo: Assignments) -> None:
        """The worker was lost before it was ready, which is no task's fault."""
        for assignment in self.unanswered:
            tell_loss(loss, assignment, seconds)
            todo.repeat(assignment)

    def crowded_out(self) -> bool:
        """Whether one worker less may help (see :meth:`Assignment.crowded_out`): fewer tasks at once come first."""
        return len(self._assignments) == 1 and self._assignments[0].crowded_out()

    def _add(self, assignment: Assignment) -> None:
        assignment.given(self.worker)
        self._assignments.append(assignment)


class Portion:
    """How many tasks workers are given at once: as many as their evaluator takes at best, or fewer where memory did not
    hold them."""

    def __init__(self) -> None:
        self._most = sys.maxsize

    def of(self, at_once: int) -> int:
        return min(at_once, self._most)

    def learn(self, loss: Loss, bundle: Bundle) -> None:
        """Over a bundle of several that memory did not hold: half as many from now on."""
        count = len(bundle.tasks)
        if loss.how == "out of memory" and 0 < count // 2 < self._most:
            self._most = count // 2
            warnings.warn(
                f"out of memory: workers are given {self._most} instead of {count} tasks at once from now on",
                DiffcreditWarning,
                stacklevel=2,
            )


def tell_loss(loss: Loss, assignment: Assignment | None, seconds: float) -> None:
    """The event of a loss: over which task, and how long the worker had owed its answer."""
    task = {} if assignment is None else vars(assignment.task)
    event(f"worker {loss.how}", level=logging.WARNING, worker=loss.worker, seconds=seconds, reason=loss.reason, **task)
