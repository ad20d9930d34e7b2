"""Evaluations in several processes of this machine."""

import multiprocessing
import os
import signal
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from diffcredit.execution import worker_process
from diffcredit.execution.assignments import WorkerFailure
from diffcredit.execution.backend import Backend, Message, Worker
from diffcredit.execution.placement import device_visible, spread
from diffcredit.execution.pool import PooledExecutor, WorkerPool, warn
from diffcredit.execution.tasks import EvaluatorFactory, Task, check_minimum, worker_name
from diffcredit.execution.time_limits import check_timeout
from diffcredit.ledger import Evaluation
from diffcredit.util.events import event

TERMINATE_WITHIN = 5.0  # seconds between asking a process to end and killing it
KILL_WITHIN = 30.0  # seconds after which a killed process must be stuck in the system, as on a dead disk or GPU


@dataclass(frozen=True)
class LocalWorkers(PooledExecutor):
    """Run tasks in ``workers`` processes of ``threads`` threads each.

    ``devices`` are CUDA devices as ``CUDA_VISIBLE_DEVICES`` names them; each worker sees one of them, in turn. By
    default workers see what this process sees.

    A worker is given as many tasks at once as its evaluator asks for. A worker that dies, that takes longer than
    ``timeout`` seconds for its tasks (None: see :class:`~diffcredit.execution.time_limits.TimeLimits`) or that meets
    a machine error (out of memory or disk) is replaced and its task repeated up to ``retries`` times; then the task
    fails. Tasks given together are first repeated one by one, which costs no retry. Where memory does not hold a
    batch, batches become smaller; where a device does not serve all its workers, they become fewer. A factory that
    raises, or workers that keep dying before their evaluator is built, end the run with an error.
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
    _process: BaseProcess

    def __init__(self, threads: int, device: str | None) -> None:
        super().__init__()
        self._threads, self.device = threads, device
        self.started = False

    @property
    def alive(self) -> bool:
        return not self.started or self._process.is_alive()

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
        self._process.join(TERMINATE_WITHIN)
        code = self._process.exitcode
        killed = code is not None and code < 0
        how = f"was killed by {signal.Signals(-code).name}" if killed else f"ended with exit code {code}"
        return [WorkerFailure(self.name, "lost", f"the worker {self.name} {how}")]

    def kill(self) -> list[Evaluation]:
        self._process.kill()
        self._process.join(KILL_WITHIN)
        unread = []
        with suppress(EOFError, OSError):
            while self.connection.poll():
                unread.append(self.connection.recv())
        if not self._process.is_alive():  # otherwise it is left to the system
            self._process.close()
        self.connection.close()
        return [message for message in unread if isinstance(message, Evaluation)]

    def terminate(self) -> None:
        """Ask the process to end; :meth:`finish` must follow."""
        self._process.terminate()

    def finish(self) -> None:
        self._process.join(TERMINATE_WITHIN)
        self.kill()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        # a daemon, so that an interpreter that ends with the run still open does not wait for its workers
        arguments = (theirs, self._threads, os.getpid())
        self._process = context.Process(target=worker_process.main, args=arguments, daemon=True)
        with device_visible(self.device):
            self._process.start()
        # with our copy of its side closed, the end of the process is the end of the connection
        theirs.close()
        self.name, self.started = worker_name(self._process.pid), True
        event("worker started", worker=self.name, device=self.device)

    def _send(self, message: Any) -> None:
        # if the worker is dead by now, its answer shows it
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)


class LocalBackend(Backend[ProcessWorker]):
    """Processes of this machine, one in each place; ``places`` are the devices that they see."""

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
            worker.terminate()
        for worker in started:
            worker.finish()
            event("worker dismissed", worker=worker.name)

    def close(self) -> None:
        """Nothing is held beside the workers."""
