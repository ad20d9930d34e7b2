"""A pool of workers, which are processes of this machine or actors of a Ray cluster (see
:mod:`diffcredit.execution.backend`). The pool decides which worker gets which task, how long it may take, and what is
repeated."""

import math
import signal
import threading
import time
import warnings
from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic

from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
from diffcredit.execution.assignments import BatchLimit, TaskBatch, TaskQueue, WorkerFailure
from diffcredit.execution.backend import Awaited, Backend, BuildError, Ready, Started, WorkerT
from diffcredit.execution.tasks import ASK_AGAIN, EvaluatorFactory, Executor, Task
from diffcredit.ledger import Evaluation
from diffcredit.util.events import event

CHECK = 1.0
"""Seconds between two checks of time limits, idle workers and interrupts."""

# how long a worker may take until it counts as hung
FACTOR = 10.0  # times the longest answer so far
LEAST = 600.0  # seconds
UNKNOWN = 86_400.0  # seconds, before the first answer
PAUSE = 60.0  # seconds between two readings: a driver that takes longer was paused, and perhaps its workers too


class TimeLimits:
    """The time limits of one run, and its clock.

    A limit is ``timeout`` or, without one, ten times the longest answer of its kind in this run, at least ten minutes;
    a day before the first answer. At most :data:`PAUSE` seconds between two readings of the clock count: if a whole run
    is paused, as by Ctrl-Z, no worker is late afterwards.
    """

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._longest = {"start": 0.0}  # a worker that is up answers at once
        self._read = time.monotonic()
        self.now = 0.0

    def read(self) -> float:
        """Advance the clock and return its seconds."""
        now = time.monotonic()
        self.now += min(now - self._read, PAUSE)
        self._read = now
        return self.now

    def record(self, kind: str, seconds: float) -> None:
        """Record how long an answer of this ``kind`` took."""
        self._longest[kind] = max(seconds, self._longest.get(kind, 0.0))

    def limit(self, kind: str) -> float:
        """Return the seconds after which a worker that owes an answer of this ``kind`` counts as hung."""
        if self._timeout is not None:
            return self._timeout
        return max(LEAST, FACTOR * self._longest[kind]) if kind in self._longest else UNKNOWN


@contextmanager
def stop_after_current(enabled: bool) -> Generator[threading.Event]:
    """Within, the first Ctrl-C sets the event and the next raises KeyboardInterrupt, if ``enabled``. Nothing changes
    outside the main thread, which alone receives signals, or where a program has its own handler."""
    stop = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if not enabled or not main or before is not signal.default_int_handler:
        yield stop
        return

    def note(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


class PooledExecutor(Executor):
    """Base class of executors whose workers are those of a pool."""

    @abstractmethod
    def new_pool(self) -> "WorkerPool":
        """Return a pool without workers yet."""

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        with self.session() as pool:
            yield from pool.run(factory, tasks)

    @contextmanager
    def session(self) -> Generator["WorkerPool"]:
        pool = self.new_pool()
        try:
            yield pool
        finally:
            pool.close()


class WorkerPool(Executor, Generic[WorkerT]):
    """The workers of one back end. Idle ones are kept from one run to the next. When tasks are repeated, and how often:
    :class:`~diffcredit.execution.local.LocalWorkers`."""

    def __init__(self, backend: Backend[WorkerT], retries: int, timeout: float | None) -> None:
        self._backend, self._retries, self._timeout = backend, retries, timeout
        self._workers: list[WorkerT] = []
        self._batch_limit = BatchLimit()
        # of the current run
        self._queue, self._limits = TaskQueue(()), TimeLimits(timeout)
        self._failed_starts = 0  # in a row

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        self._queue, self._limits, self._failed_starts = TaskQueue(tasks), TimeLimits(self._timeout), 0
        if self._queue.is_empty():  # then nothing is started or connected
            return
        with self._backend.payload(factory) as payload, stop_after_current(self._backend.drains) as stop:
            try:
                yield from self._serve(payload, stop)
            finally:
                self._end(self._busy)

    def close(self) -> None:
        """End all workers."""
        self._end(self._workers)
        self._backend.close()

    @property
    def _busy(self) -> list[WorkerT]:
        return [worker for worker in self._workers if worker.batch]

    @property
    def _idle(self) -> list[WorkerT]:
        """Idle workers, those with an evaluator first."""
        idle = [worker for worker in self._workers if not worker.batch and not worker.awaiting]
        return sorted(idle, key=lambda worker: not worker.ready)

    def _serve(self, payload: Any, stop: threading.Event) -> Iterator[Evaluation]:
        for worker in self._workers:  # by this run's clock; idle ones are checked first
            worker.asked = self._limits.now if worker.awaiting else -math.inf
        announced = False
        while True:
            self._check_idle()
            self._assign(payload, stop)
            self._send_batches(single=stop.is_set())
            if not self._busy and stop.is_set():
                raise KeyboardInterrupt
            if not self._busy and not self._queue.open:
                return
            if stop.is_set() and not announced:
                announced = True
                count = sum(len(worker.batch.unanswered) for worker in self._busy if worker.batch)
                warn(f"stopping: {count} evaluations under way are finished first; Ctrl-C again stops at once")
            seconds = ASK_AGAIN if self._queue.open and self._idle else CHECK
            for worker in self._backend.wait([each for each in self._workers if each.awaiting], seconds):
                yield from self._receive(worker)
            for worker, limit in self._overdue():
                yield from self._time_out(worker, limit)

    def _check_idle(self) -> None:
        """Ping workers that were idle for a while: if one is lost, that must not count against its next task."""
        for worker in self._idle:
            if self._limits.read() - worker.asked > CHECK and worker.ping():
                self._await(worker, "start")

    def _assign(self, payload: Any, stop: threading.Event) -> None:
        """Give each idle worker a task, while there are tasks."""
        if self._queue.open and not stop.is_set():
            self._workers += self._backend.recruit(self._workers)
        while (idle := self._idle) and not stop.is_set() and (assignment := self._queue.next()):
            worker = idle[0]
            if not worker.alive:  # all that it was given is answered: no task is to blame
                self._queue.put_back(assignment)
                self._receive(worker)
                self._workers += self._backend.recruit(self._workers)
                continue
            if worker.payload != payload:
                worker.build(payload)
                worker.payload, worker.ready = payload, False
                self._await(worker, "evaluator")
            worker.batch = TaskBatch(worker.name, assignment)

    def _send_batches(self, *, single: bool) -> None:
        """Fill and send the batches of workers whose evaluator is built."""
        for worker in self._workers:
            if worker.batch and not worker.awaiting:
                worker.batch.fill(self._queue, 1 if single else min(self._batch_limit.most, worker.at_once))
                worker.evaluate(worker.batch.tasks)
                self._await(worker, "evaluation")

    def _await(self, worker: WorkerT, message: Awaited | None) -> None:
        worker.awaiting, worker.asked = message, self._limits.read()

    def _receive(self, worker: WorkerT) -> list[Evaluation]:
        """Return the evaluations that a worker sent, and the failed one of a task that no worker survives."""
        seconds = self._limits.read() - worker.asked
        evaluations, messages = [], worker.receive()
        if not messages:
            self._await(worker, worker.awaiting)
        for message in messages:
            if isinstance(message, Evaluation):
                self._answered(worker, message, seconds)
                evaluations.append(message)
            elif isinstance(message, WorkerFailure):
                worker.kill()
                evaluations += self._remove(worker, message, seconds)
            elif isinstance(message, Started):
                self._await(worker, None)
            elif isinstance(message, Ready):
                self._limits.record("evaluator", seconds)
                self._failed_starts = 0
                worker.ready, worker.at_once = True, message.at_once
                self._await(worker, None)
                event("worker ready", worker=worker.name, seconds=seconds)
            elif isinstance(message, BuildError):
                raise (UserError if message.user_error else DiffcreditError)(message.message)
        return evaluations

    def _answered(self, worker: WorkerT, evaluation: Evaluation, seconds: float) -> None:
        assert worker.batch  # a worker sends evaluations only for a batch
        self._failed_starts = 0
        worker.batch.answered(evaluation, seconds)
        if not worker.batch.unanswered:
            if worker.batch.representative:
                self._limits.record("evaluation", seconds)
            worker.batch = None
            self._await(worker, None)

    def _overdue(self) -> list[tuple[WorkerT, float]]:
        """Return the workers that exceed their time limit, with the limit. A worker without a name has none: how long
        it takes to find room for it is not known."""
        limits = [(each, self._limits.limit(each.awaiting)) for each in self._workers if each.awaiting and each.name]
        return [(worker, limit) for worker, limit in limits if self._limits.read() - worker.asked > limit]

    def _time_out(self, worker: WorkerT, limit: float) -> list[Evaluation]:
        """Kill a worker that exceeded its time limit. What it sent at the last moment counts."""
        if self._backend.wait([worker], 0):
            return self._receive(worker)
        seconds, evaluations = self._limits.now - worker.asked, worker.kill()
        for evaluation in evaluations:
            self._answered(worker, evaluation, seconds)
        if evaluations and not worker.batch:
            self._workers.remove(worker)
            return evaluations
        reason = f"the worker {worker.name} took longer than {limit:.4g} s and was killed"
        return [*evaluations, *self._remove(worker, WorkerFailure(worker.name, "timed out", reason), seconds)]

    def _remove(self, worker: WorkerT, failure: WorkerFailure, seconds: float) -> list[Evaluation]:
        """Have the tasks of a failed worker repeated; return the failed evaluations of those without retries left."""
        self._workers.remove(worker)
        given_up, device_failed = [], False
        if worker.batch is None:
            failure.report(None, seconds)
        elif worker.ready:
            given_up = worker.batch.failed(failure, seconds, self._queue, self._retries)
            self._batch_limit.lower(failure, worker.batch)
            device_failed = worker.batch.device_failed_twice()
        else:
            worker.batch.put_back(failure, seconds, self._queue)
            device_failed = failure.device_failed
        if device_failed and self._backend.retire(worker, failure):
            return given_up
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= (self._retries + 1) * self._backend.places:
                raise DiffcreditError(f"workers end before they are ready: {failure.reason}")
        return given_up

    def _end(self, workers: list[WorkerT]) -> None:
        self._backend.end(workers)
        self._workers = [worker for worker in self._workers if worker not in workers]


def warn(message: str) -> None:
    warnings.warn(message, DiffcreditWarning, stacklevel=2)
