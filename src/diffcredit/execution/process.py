"""A worker process as its driver sees it."""

import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Literal

from diffcredit.execution.placement import seeing
from diffcredit.execution.tasks import EvaluatorFactory, Task, worker_name
from diffcredit.execution.worker import Build, CannotStart, InTrouble, Ready, work
from diffcredit.ledger import Evaluation
from diffcredit.util.events import event

PATIENCE = 5.0  # seconds between asking a process to end and ending it
CERTAINTY = 30.0  # seconds after which a killed process must be stuck in the system, as on a dead disk or GPU

Answer = Ready | CannotStart | InTrouble | Evaluation


class WorkerProcess:
    """A process on a CUDA ``device`` of its own (None: it sees what the driver sees) that builds an evaluator, which
    takes ``at_once`` tasks at best, is given tasks and answers. ``asked`` is when it was last given something, by the
    clock of who gives it."""

    def __init__(self, threads: int, device: str | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        # a daemon, so that an interpreter that ends with the run still open does not wait for its workers
        self._process = context.Process(target=work, args=(theirs, threads, os.getpid()), daemon=True)
        with seeing(device):
            self._process.start()
        # with our copy of its side closed, the end of the process is the end of the connection
        theirs.close()
        self.name = worker_name(self._process.pid)
        self.device = device
        self.ready = False  # whether its evaluator is built
        self.at_once = 1
        self.asked = 0.0
        self._factory: EvaluatorFactory | None = None
        self._unanswered = 0  # tasks
        event("worker started", worker=self.name, device=device)

    @property
    def owes(self) -> Literal["evaluator", "evaluation"] | None:
        """What its next answer tells of; None: it was given nothing that it has not answered."""
        if not self.ready:
            return "evaluator"
        return "evaluation" if self._unanswered else None

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def build(self, factory: EvaluatorFactory, first: Task, now: float) -> None:
        """Has it build its evaluator, unless it has that one, for the task that comes first."""
        if self._factory != factory:
            self._factory, self.ready = factory, False
            self._send(Build(factory, first), now)

    def give(self, tasks: tuple[Task, ...], now: float) -> None:
        self._unanswered = len(tasks)
        self._send(tasks, now)

    def last_words(self) -> Iterator[Answer]:
        """The answers of a killed worker that nobody has received."""
        while self.connection.poll() and (answer := self.receive()) is not None:
            yield answer

    def receive(self) -> Answer | None:
        """The next answer, or None if the worker is dead and has left no other."""
        try:
            answer = self.connection.recv()
        except (EOFError, ConnectionResetError):
            return None
        if isinstance(answer, Ready):
            self.ready, self.at_once = True, answer.at_once
            self._unanswered = int(self.at_once == 1)  # it has begun
        elif isinstance(answer, Evaluation):
            self._unanswered -= 1
        return answer

    def kill(self) -> None:
        """Ends it at once, even if it is stopped; what it has said before is heard by :meth:`last_words`."""
        self._process.kill()
        self._process.join(CERTAINTY)

    def bury(self) -> str:
        """Clears a dead worker away; how it ended, in words."""
        self._process.join(PATIENCE)
        code = self._process.exitcode
        self._end()
        if code is None or code >= 0:
            return f"the worker {self.name} ended with exit code {code}"
        return f"the worker {self.name} was killed by {signal.Signals(-code).name}"

    def _send(self, message: Build | tuple[Task, ...], now: float) -> None:
        self.asked = now
        # a worker that is dead by now shows when its answer is awaited
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)

    def _end(self) -> None:
        self._process.join(PATIENCE)
        if self._process.is_alive():
            self.kill()
        if not self._process.is_alive():  # or else it is left to the system
            self._process.close()
        self.connection.close()

    @staticmethod
    def dismiss(workers: "Iterable[WorkerProcess]") -> None:
        """Ends all of them; all are asked before any is waited for."""
        workers = list(workers)
        for worker in workers:
            worker._process.terminate()
        for worker in workers:
            worker._end()
            event("worker dismissed", worker=worker.name)


def answering(workers: Iterable[WorkerProcess], seconds: float) -> list[WorkerProcess]:
    """Waits until a worker answers or dies, or so long; those that did."""
    crew = list(workers)
    answered = wait([worker.connection for worker in crew], seconds)
    return [worker for worker in crew if worker.connection in answered]
