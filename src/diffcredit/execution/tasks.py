"""Tasks, the evaluators that carry them out, and the executors that run evaluators somewhere.

An executor knows nothing of models or images. The same task gives the same values, bit for bit, in every executor.

Example::

    class Brightness(Evaluator):
        def evaluate(self, tasks):
            for task in tasks:
                yield my_evaluation(task)

    tasks = [Task("110", replicate=0, purpose="estimate")]
    for evaluation in LocalWorkers(workers=4).run(Brightness, tasks):
        print(evaluation.values)
"""

import math
import os
import platform
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from diffcredit.errors import UserError
from diffcredit.execution.machine_errors import machine_error
from diffcredit.execution.versions import package_versions
from diffcredit.ledger import Evaluation, Value

ASK_AGAIN = 0.5
"""Seconds until an executor that was given None asks for a task again."""


@dataclass(frozen=True)
class Task:
    """One evaluation to make. ``coalition`` is a text of n characters 0 and 1."""

    coalition: str
    replicate: int
    purpose: str

    @property
    def key(self) -> tuple[str, int]:
        """The coalition and replicate, by which the ledger identifies the evaluation."""
        return self.coalition, self.replicate


class Evaluator(ABC):
    """Base class of what turns tasks into evaluations. One thread of a worker builds an evaluator and calls it for one
    batch of tasks after another.

    An error of one task should become that task's failed evaluation; one that is raised fails all unanswered tasks of
    the batch. Machine errors (out of memory, disk full) must be raised: the executor repeats the tasks. An executor may
    close the iterator before its end.
    """

    @property
    def at_once(self) -> int:
        """How many tasks are best evaluated together; 1 by default."""
        return 1

    @abstractmethod
    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        """Yield one evaluation for each task, in order."""

    def evaluate_pipelined(self, tasks: Sequence[Task], more: Callable[[], Sequence[Task]]) -> Iterator[Evaluation]:
        """Yield one evaluation for each task, and for each task that ``more()`` returns (none: ``()``), in order. An
        evaluator that can start the next tasks before all are answered overrides this; here ``more`` is not called."""
        answers = iter(self.evaluate(tasks))
        yield from islice(answers, len(tasks) - 1)
        (last,) = answers  # raises ValueError where there are too few or too many
        yield last


EvaluatorFactory = Callable[[], Evaluator]
"""Builds the evaluator in its worker. It is sent to other processes: use a frozen dataclass with ``__call__``, or a
``functools.partial`` of a module's function."""


class Executor(ABC):
    """Base class of the places where evaluations run. One thread uses an executor, for one run at a time."""

    @abstractmethod
    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        """Yield one evaluation for each task, in any order. Closing the iterator stops the work.

        A task is taken only when a worker can start it, after all results so far were yielded: tasks may depend on
        results. A worker whose evaluator takes several at once is given that many, or those that are available now.
        None among the tasks means that none is available now but may be later: the executor asks again after
        :data:`ASK_AGAIN` seconds. No evaluator is built before the first task. Raises UserError or DiffcreditError if
        none can be built.
        """

    @contextmanager
    def session(self) -> Generator["Executor"]:
        """Yield an executor that keeps its workers from one run to the next, until the session ends."""
        yield self


def evaluate_all(
    evaluator: Evaluator, tasks: Sequence[Task], more: Callable[[], Sequence[Task]] = tuple
) -> Iterator[Evaluation]:
    """Yield exactly one evaluation for each task (and each that the evaluator gets from ``more``), in order. A task
    without an answer, or with another task's, fails. Raises MachineError where the machine is to blame."""
    started, unanswered = utc_now(), deque(tasks)

    def another() -> Sequence[Task]:
        found = more()
        unanswered.extend(found)
        return found

    answers = evaluator.evaluate_pipelined(tasks, another)
    trouble, error = None, ""
    while unanswered:
        try:
            evaluation = next(answers)
            answered = Task(evaluation.coalition, evaluation.replicate, evaluation.purpose)
        except Exception as raised:
            trouble, error = machine_error(raised), traceback.format_exc()
            break
        task = unanswered.popleft()
        if answered != task:
            wrong = f"the evaluator answered {answered} when asked for {task}"
            evaluation = failed_evaluation(task, wrong, worker_name(), started)
        yield evaluation
    if trouble is not None:
        raise trouble
    for task in unanswered:
        yield failed_evaluation(task, error, worker_name(), started)


def done_evaluation(
    task: Task, values: Sequence[Value], started: str, numerics: dict[str, Any], seconds: dict[str, float]
) -> Evaluation:
    """Return the evaluation of a task that this process has just finished."""
    about, origin = (task.coalition, task.replicate, task.purpose), (worker_name(), started, utc_now())
    return Evaluation(*about, "done", tuple(values), None, numerics, seconds, *origin, package_versions())


def failed_evaluation(task: Task, error: str, worker: str, started: str) -> Evaluation:
    about, origin = (task.coalition, task.replicate, task.purpose), (worker, started, utc_now())
    return Evaluation(*about, "failed", (), error, {}, {}, *origin, package_versions())


def worker_name(pid: int | None = None) -> str:
    """Return ``machine:process`` of this process, or of the process ``pid`` of this machine."""
    return f"{platform.node()}:{os.getpid() if pid is None else pid}"


def utc_now() -> str:
    """Return the time in ISO 8601, to the millisecond: ``2025-01-31T12:00:00.000+00:00``."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def check_minimum(settings: Any, **minimum: float) -> None:
    """Refuse settings below their minimum; None is always accepted."""
    for name, least in minimum.items():
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise UserError(f"{name}: {value}; must be at least {least}")


def check_timeout(timeout: float | None) -> None:
    """Refuse a timeout that is not a positive, finite number of seconds."""
    if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
        raise UserError(f"timeout: {timeout}; must be more than 0 seconds")
