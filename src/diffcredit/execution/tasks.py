"""What is to be evaluated, who evaluates it, and where that runs.

An executor carries tasks to evaluators; it knows nothing of models or images. Whatever the executor, the same
task gives the same values, bit for bit.
"""

import os
import platform
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Protocol

from diffcredit.execution.troubles import told
from diffcredit.execution.versions import package_versions
from diffcredit.ledger import Evaluation

ASK_AGAIN = 0.5
"""Seconds until an executor that was given None asks for a task again."""


@dataclass(frozen=True)
class Task:
    """One evaluation to be made; ``coalition`` is a text of n characters 0 and 1."""

    coalition: str
    replicate: int
    purpose: str

    @property
    def key(self) -> tuple[str, int]:
        """The coalition and replicate, by which the ledger identifies the evaluation."""
        return self.coalition, self.replicate


class Evaluator(Protocol):
    """What a worker builds once and calls for each batch of tasks. It may have an attribute ``at_once``: how many tasks
    it evaluates best at once; 1 where it has none. It may have a method ``evaluate_on(tasks, more)``, which does as
    ``evaluate``, and asks ``more()`` for other tasks, () if there are none, when it could begin with them though not
    all so far are answered."""

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        """One evaluation for each task, in order. What fails within becomes a failed evaluation, or is raised: a
        machine whose memory or disk is full must be."""
        ...


EvaluatorFactory = Callable[[], Evaluator]
"""Builds the evaluator in its worker. Travels between processes: a frozen dataclass with ``__call__``, or a
``functools.partial`` of a module's function."""


class Executor(Protocol):
    """Where evaluations run."""

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        """One evaluation for each task, as they come, in any order.

        A task is taken from ``tasks`` only when a worker can begin with it, after all results so far have been
        yielded: the tasks may depend on the results. A worker whose evaluator evaluates several at once is given as
        many, or as many as are to be had now. None among them says that there is nothing to be had now, though there
        may be soon: the executor serves its busy workers and asks again after :data:`ASK_AGAIN` seconds. No evaluator
        is built before the first task. Closing the iterator stops the work.
        """
        ...


def at_once(evaluator: Evaluator) -> int:
    """How many tasks the evaluator evaluates best at once."""
    return getattr(evaluator, "at_once", 1)


def evaluate_all(
    evaluator: Evaluator, tasks: Sequence[Task], more: Callable[[], Sequence[Task]] | None = None
) -> Iterator[Evaluation]:
    """One evaluation for each task, in order; those that the evaluator does not answer, since it raises or answers too
    few, and that it answers with another task's, or with too many, are failed ones. ``more`` is asked for further
    tasks by an evaluator that can begin with them before. Raises MachineTrouble where the machine is to blame."""
    started, unanswered = utc_now(), deque(tasks)

    def another() -> Sequence[Task]:
        found = more() if more is not None else ()
        unanswered.extend(found)
        return found

    evaluate_on = getattr(evaluator, "evaluate_on", None)
    answers = _as_many(evaluator, tasks) if evaluate_on is None or more is None else evaluate_on(tasks, another)
    trouble, error = None, ""
    while unanswered:
        try:
            evaluation = next(answers)
            answered = Task(evaluation.coalition, evaluation.replicate, evaluation.purpose)
        except Exception as raised:
            trouble, error = told(raised), traceback.format_exc()
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


def _as_many(evaluator: Evaluator, tasks: Sequence[Task]) -> Iterator[Evaluation]:
    """What the evaluator answers; raises ValueError instead of the last where that would be too few or too many."""
    answers = iter(evaluator.evaluate(tasks))
    yield from islice(answers, len(tasks) - 1)
    (last,) = answers
    yield last


def failed_evaluation(task: Task, error: str, worker: str, started: str) -> Evaluation:
    return Evaluation(
        coalition=task.coalition,
        replicate=task.replicate,
        purpose=task.purpose,
        status="failed",
        values=(),
        error=error,
        numerics={},
        seconds={},
        worker=worker,
        started=started,
        finished=utc_now(),
        versions=package_versions(),
    )


def worker_name(pid: int | None = None) -> str:
    """``machine:process``, of this process unless another is given."""
    return f"{platform.node()}:{os.getpid() if pid is None else pid}"


def utc_now() -> str:
    """The time in ISO 8601, to the millisecond: ``2025-01-31T12:00:00.000+00:00``."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
