"""Evaluations in several processes of this machine."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.execution.tasks import ASK_AGAIN, EvaluatorFactory, Task, failed_evaluation, utc_now, worker_name
from diffcredit.execution.worker import CannotStart, Ready, work
from diffcredit.ledger import Evaluation

_NO_MORE = object()  # a run's tasks have ended
_PATIENCE = 5.0  # seconds between asking a process to end and ending it


@dataclass(frozen=True)
class LocalWorkers:
    """Runs tasks in ``workers`` processes of ``threads`` threads each.

    A worker that dies (killed, out of memory) is replaced and its task repeated up to ``retries`` times; then
    the task comes back as a failed evaluation. A factory that raises, or workers that keep dying before they
    have built their evaluator, end the run with an error.
    """

    workers: int
    threads: int = 1
    retries: int = 2

    def __post_init__(self) -> None:
        for name, least in (("workers", 1), ("threads", 1), ("retries", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name}: {getattr(self, name)}; must be at least {least}")

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        with self.crew() as crew:
            yield from crew.run(factory, tasks)

    @contextmanager
    def crew(self) -> Generator["Crew"]:
        """The same processes for one run after another, whatever they evaluate: a process takes seconds to start."""
        crew = Crew(self.workers, self.threads, self.retries)
        try:
            yield crew
        finally:
            _dismiss(crew.idle)


@dataclass(frozen=True)
class Crew:
    """Workers of which those that are ``idle`` wait for the next run."""

    workers: int
    threads: int
    retries: int
    idle: "list[_Worker]" = field(default_factory=list)

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        fresh = (task and _Assignment(task) for task in tasks)
        repeated: deque[_Assignment] = deque()
        busy: dict[_Worker, _Assignment] = {}
        stillborn = 0
        try:
            while True:
                waiting = False  # for a task that may be had soon
                while len(busy) < self.workers:
                    assignment = repeated.popleft() if repeated else next(fresh, _NO_MORE)
                    if not isinstance(assignment, _Assignment):
                        waiting = assignment is None
                        break
                    worker = self.idle.pop() if self.idle else _Worker(self.threads)
                    busy[worker] = assignment
                    worker.give(factory, assignment.task)
                if not busy and not waiting:
                    return
                for worker in _answering(busy, ASK_AGAIN if waiting else None):
                    answer = worker.receive()
                    if isinstance(answer, Ready):
                        stillborn = 0
                    elif isinstance(answer, CannotStart):
                        raise (UserError if answer.users_mistake else DiffcreditError)(answer.message)
                    elif isinstance(answer, Evaluation):
                        del busy[worker]
                        self.idle.append(worker)
                        yield answer
                    else:
                        assignment, ending = busy.pop(worker), worker.bury()
                        if worker.ready:
                            assignment.deaths += 1
                        else:
                            stillborn += 1
                        if stillborn > self.retries:
                            raise DiffcreditError(f"workers end before they are ready: {ending}")
                        if assignment.deaths > self.retries:
                            yield assignment.failure(worker, ending)
                        else:
                            repeated.append(assignment)
        finally:
            _dismiss([*busy])


@dataclass
class _Assignment:
    """A task, since when it is under way, and how many workers died over it."""

    task: Task
    started: str = field(default_factory=utc_now)
    deaths: int = 0

    def failure(self, worker: "_Worker", ending: str) -> Evaluation:
        error = f"the worker {ending}; {self.deaths} workers died over this task"
        return failed_evaluation(self.task, error, worker.name, self.started)


class _Worker:
    """A worker process as the driver sees it."""

    def __init__(self, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        # a daemon, so that an interpreter that ends with the run still open does not wait for its workers
        self._process = context.Process(target=work, args=(theirs, threads, os.getpid()), daemon=True)
        self._process.start()
        # with our copy of its side closed, the end of the process is the end of the connection
        theirs.close()
        self.name = worker_name(self._process.pid)
        self.ready = False
        self._factory: EvaluatorFactory | None = None

    def give(self, factory: EvaluatorFactory, task: Task) -> None:
        # a worker that is dead by now shows when its answer is awaited
        with suppress(BrokenPipeError, ConnectionResetError):
            if self._factory != factory:
                self.ready = False
                self.connection.send(factory)
                self._factory = factory
            self.connection.send(task)

    def receive(self) -> Any:
        """The next answer, or None if the worker is dead."""
        try:
            answer = self.connection.recv()
        except (EOFError, ConnectionResetError):
            return None
        self.ready = self.ready or isinstance(answer, Ready)
        return answer

    def bury(self) -> str:
        """Clears a dead worker away; how it ended, in words."""
        self._process.join(_PATIENCE)
        code = self._process.exitcode
        self.end()
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        return f"was killed by {signal.Signals(-code).name}"

    def terminate(self) -> None:
        self._process.terminate()

    def end(self) -> None:
        self._process.join(_PATIENCE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
        self.connection.close()


def _answering(workers: Iterable[_Worker], seconds: float | None) -> list[_Worker]:
    """Waits until a worker answers or dies, or so long; those that did."""
    crew = list(workers)
    answering = wait([worker.connection for worker in crew], seconds)
    return [worker for worker in crew if worker.connection in answering]


def _dismiss(workers: list[_Worker]) -> None:
    """Ends all workers; all are asked before any is waited for."""
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.end()
