"""Evaluations in several processes of this machine.

A worker process receives a factory and answers :class:`Ready` or :class:`BuildError`. Then it receives tuples of tasks
and answers one evaluation for each, in order, as they are made. Another factory replaces the first. The process ends
when the connection does, or after a machine error, which it sends as a :class:`WorkerFailure`: what it held is then
free for the worker that takes its place.
"""

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import cycle, islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from diffcredit.errors import UserError
from diffcredit.execution.assignments import WorkerFailure
from diffcredit.execution.backend import Backend, BuildError, Message, Ready, Worker
from diffcredit.execution.machine_errors import MachineError, machine_error
from diffcredit.execution.pool import PooledExecutor, WorkerPool, warn
from diffcredit.execution.tasks import (
    EvaluatorFactory,
    Task,
    check_minimum,
    check_timeout,
    evaluate_all,
    worker_name,
)
from diffcredit.execution.threads import environment, limited_threads
from diffcredit.ledger import Evaluation
from diffcredit.util.events import event

TERMINATE_WITHIN = 5.0  # seconds between asking a process to end and killing it
KILL_WITHIN = 30.0  # seconds after which a killed process must be stuck in the system, as on a dead disk or GPU
DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class LocalWorkers(PooledExecutor):
    """Run tasks in ``workers`` processes of ``threads`` threads each.

    ``devices`` are CUDA devices as ``CUDA_VISIBLE_DEVICES`` names them; each worker sees one of them, in turn. By
    default workers see what this process sees.

    A worker that dies, takes longer than ``timeout`` seconds (None: see :class:`~diffcredit.execution.pool.TimeLimits`)
    or meets a machine error (out of memory or disk) is replaced and its task repeated up to ``retries`` times; then the
    task fails. Tasks given together are first repeated one by one, which costs no retry. Where memory does not hold a
    batch, batches become smaller; where a device does not serve all its workers, they become fewer. A factory that
    raises, or workers that keep dying before they are ready, end the run with an error.
    """

    workers: int
    threads: int = 1
    retries: int = 2
    timeout: float | None = None
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_minimum(self, workers=1, threads=1, retries=0)
        check_timeout(self.timeout)

    def new_pool(self) -> WorkerPool:
        return WorkerPool(LocalBackend(self.threads, spread(self.workers, self.devices)), self.retries, self.timeout)


class ProcessWorker(Worker):
    """A process on a CUDA ``device`` of its own (None: it sees what the driver sees), started for its first task."""

    connection: Connection
    process: BaseProcess

    def __init__(self, threads: int, device: str | None) -> None:
        super().__init__()
        self._threads, self.device = threads, device
        self.started = False

    @property
    def alive(self) -> bool:
        return not self.started or self.process.is_alive()

    def build(self, payload: EvaluatorFactory) -> None:
        if not self.started:
            self._start()
        self._send(payload)

    def evaluate(self, tasks: Sequence[Task]) -> None:
        self._send(tuple(tasks))

    def receive(self) -> list[Message]:
        # one that was killed while it sent a message leaves half of it, which is an OSError
        with suppress(EOFError, OSError):
            if self.connection.poll():
                return [self.connection.recv()]
        self.process.join(TERMINATE_WITHIN)
        code = self.process.exitcode
        killed = code is not None and code < 0
        how = f"was killed by {signal.Signals(-code).name}" if killed else f"ended with exit code {code}"
        return [WorkerFailure(self.name, "lost", f"the worker {self.name} {how}")]

    def kill(self) -> list[Evaluation]:
        self.process.kill()
        self.process.join(KILL_WITHIN)
        unread = []
        with suppress(EOFError, OSError):
            while self.connection.poll():
                unread.append(self.connection.recv())
        if not self.process.is_alive():  # otherwise it is left to the system
            self.process.close()
        self.connection.close()
        return [message for message in unread if isinstance(message, Evaluation)]

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        # a daemon, so that an interpreter that ends with the run still open does not wait for its workers
        arguments = (theirs, self._threads, os.getpid())
        self.process = context.Process(target=_work, args=arguments, daemon=True)
        with environment({} if self.device is None else {DEVICES_VARIABLE: self.device}):
            self.process.start()
        # with our copy of its side closed, the end of the process is the end of the connection
        theirs.close()
        self.name, self.started = worker_name(self.process.pid), True
        event("worker started", worker=self.name, device=self.device)

    def _send(self, message: Any) -> None:
        # if the worker is dead by now, its answer shows it
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)


class LocalBackend(Backend[ProcessWorker]):
    """Processes of this machine, one for each of ``devices``: the device that it sees (None: those of the driver)."""

    def __init__(self, threads: int, devices: Sequence[str | None]) -> None:
        self._threads, self._devices = threads, list(devices)

    def payload(self, factory: EvaluatorFactory) -> AbstractContextManager[EvaluatorFactory]:
        return nullcontext(factory)

    def recruit(self, workers: Sequence[ProcessWorker]) -> list[ProcessWorker]:
        taken, recruits = [worker.device for worker in workers], []
        for device in self._devices:
            if device in taken:
                taken.remove(device)
            else:
                recruits.append(ProcessWorker(self._threads, device))
        return recruits

    def wait(self, workers: Sequence[ProcessWorker], seconds: float) -> list[ProcessWorker]:
        readable = wait([worker.connection for worker in workers], seconds)
        return [worker for worker in workers if worker.connection in readable]

    def retire(self, worker: ProcessWorker, failure: WorkerFailure) -> bool:
        if len(self._devices) == 1:
            return False
        self._devices.remove(worker.device)
        left = self._devices.count(worker.device)
        where = "here" if worker.device is None else f"on the GPU {worker.device}"
        warn(f"{failure.kind}: {left} instead of {left + 1} workers {where} from now on (--workers)")
        return True

    def end(self, workers: Sequence[ProcessWorker]) -> None:
        started = [worker for worker in workers if worker.started]
        for worker in started:  # all are asked before any is waited for
            worker.process.terminate()
        for worker in started:
            worker.process.join(TERMINATE_WITHIN)
            worker.kill()
            event("worker dismissed", worker=worker.name)

    def close(self) -> None:
        """Do nothing: processes hold all there is."""


def _work(connection: Connection, threads: int, driver: int) -> None:
    """Serve the process ``driver``, which started this one, with ``threads`` threads."""
    # Ctrl-C reaches every process of the terminal; the driver alone decides what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(driver,), daemon=True).start()
    with limited_threads(threads), suppress(EOFError, BrokenPipeError, ConnectionResetError):
        # received, not passed at the start, so that what the factory imports finds the threads limited
        factory = connection.recv()
        while factory is not None:
            factory = _serve(connection, factory)


def _serve(connection: Connection, factory: EvaluatorFactory) -> EvaluatorFactory | None:
    """Build an evaluator and evaluate, until another factory comes; None if this process is of no more use."""
    # a function of its own, so that this evaluator is freed before the next is built: both may not fit into memory
    try:
        evaluator = factory()
        ready = Ready(evaluator.at_once)
    except UserError as error:
        connection.send(BuildError(str(error), user_error=True))
        return None
    except Exception as error:
        message = f"a worker could not build its evaluator:\n{traceback.format_exc()}"
        found = machine_error(error)
        failure = WorkerFailure(worker_name(), found.kind, message) if found else BuildError(message, user_error=False)
        connection.send(failure)
        return None
    connection.send(ready)
    while not callable(message := connection.recv()):
        try:
            for evaluation in evaluate_all(evaluator, message):
                connection.send(evaluation)
        except MachineError as error:
            connection.send(WorkerFailure(worker_name(), error.kind, str(error)))
            return None
    return message


def _end_with(driver: int) -> None:
    """End this process when the driver is gone, even if it was killed."""
    while os.getppid() == driver:
        time.sleep(0.5)
    os._exit(1)


def visible_devices(count: int, variable: str | None) -> tuple[str, ...]:
    """Return the ``count`` CUDA devices that this process sees, by their names in ``CUDA_VISIBLE_DEVICES``.
    ``variable`` is its value here: numbers, UUIDs or names of MIG devices; None if it is not set."""
    if variable is None:
        return tuple(map(str, range(count)))
    names = tuple(name.strip() for name in variable.split(","))
    # a process sees only the first of several MIG devices
    return names if names[0].startswith("MIG-") else names[:count]


def spread(workers: int, devices: Sequence[str]) -> list[str | None]:
    """Return the device of each worker, in turn; None for all where there are no ``devices``."""
    return list(islice(cycle(devices), workers)) if devices else [None] * workers
