"""Evaluate the tasks of a study and record them, alone or beside other drivers of the same study.

A driver claims a task just before a worker starts it, reads from the ledger what others recorded, and comes back later
to tasks that others hold. If a driver is gone, its claims expire and the others take over its tasks. A driver that was
only paused, such as a laptop that slept, may bring its result late; the ledger compares the values.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from diffcredit.errors import DiffcreditError
from diffcredit.execution import EvaluatorFactory, Executor, Task
from diffcredit.execution.holders import is_gone, new_holder
from diffcredit.ledger import Claim, Evaluation, Ledger, NonDeterminism
from diffcredit.ledger.clock import Clock
from diffcredit.util.events import event
from diffcredit.util.sanitize import last_line

LEASE = 120.0  # seconds for which a claim is valid; it is renewed after a third of them
AGAIN = 0.1  # share of a lease between two tries to claim a task that another driver holds


class Driver:
    """One process's part in evaluating a recipe: it claims tasks, has them evaluated and records the results. A driver
    serves one run.

    ``on_recorded`` is called with every evaluation recorded after ``mark`` (see :meth:`Ledger.evaluations_since`), by
    this driver or another, in the order of the ledger: before each task is chosen and each evaluation is yielded.
    """

    def __init__(
        self,
        ledger: Ledger,
        study: str,
        recipe: str,
        on_recorded: Callable[[Evaluation], object],
        mark: int,
        lease: float = LEASE,
    ) -> None:
        self._ledger, self._study, self._recipe = ledger, study, recipe
        self._on_recorded, self._mark, self._lease = on_recorded, mark, lease
        self._holder = new_holder()
        self._held: dict[tuple[str, int], Claim] = {}
        self._lock = threading.Lock()  # of self._held, which another thread reads
        self._finished = threading.Event()
        self._attempted: set[tuple[str, int]] = set()

    def run(self, executor: Executor, factory: EvaluatorFactory, wanted: Iterable[Task]) -> Iterator[Evaluation]:
        """Evaluate the ``wanted`` tasks that no other driver evaluates; yield each evaluation once it is recorded. Ends
        when every one has been tried, here or elsewhere since the beginning."""
        with self._renewing_claims():
            for evaluation in executor.run(factory, self._tasks(wanted)):
                recorded = self._record(evaluation)
                self._read_ledger()
                yield recorded

    def _tasks(self, wanted: Iterable[Task]) -> Iterator[Task | None]:
        """Yield tasks as they can be claimed; None where others hold all that is left."""
        fresh = iter(wanted)
        postponed: dict[Task, float] = {}  # when to try again
        more = True
        while more or postponed:
            self._read_ledger()
            postponed = {task: due for task, due in postponed.items() if task.key not in self._attempted}
            task = next((task for task, due in postponed.items() if due <= time.monotonic()), None)
            if task is None and more:
                task = next(fresh, None)
                more = task is not None
            if task is None:
                if postponed:
                    yield None
            elif self._claim(task):
                postponed.pop(task, None)
                yield task
            elif not self._is_done(task):
                if task not in postponed:
                    event("claim postponed", recipe=self._recipe, coalition=task.coalition, replicate=task.replicate)
                postponed[task] = time.monotonic() + AGAIN * self._lease

    def _claim(self, task: Task) -> bool:
        claim = self._ledger.claim(self._study, self._recipe, *task.key, self._holder, self._lease, is_gone)
        if claim is None:
            return False
        with self._lock:
            self._held[task.key] = claim
        return True

    def _is_done(self, task: Task) -> bool:
        """Return whether a task that cannot be claimed is done. An evaluation made for another purpose before this run
        began serves this one too."""
        done = self._ledger.done(self._study, self._recipe, *task.key)
        self._read_ledger()
        if done is not None and task.key not in self._attempted:
            self._attempted.add(task.key)
            self._on_recorded(replace(done, purpose=task.purpose))
        return done is not None

    def _record(self, evaluation: Evaluation) -> Evaluation:
        """Record an evaluation and return it as recorded. One that contradicts an earlier one is recorded as failed."""
        try:
            self._ledger.record(self._study, self._recipe, evaluation)
        except NonDeterminism as error:
            evaluation = replace(evaluation, status="failed", values=(), error=str(error))
            self._ledger.record(self._study, self._recipe, evaluation)
            event("non-determinism", level=logging.WARNING, recipe=self._recipe, error=str(error))
        event(
            "evaluation recorded",
            level=logging.INFO if evaluation.status == "done" else logging.WARNING,
            recipe=self._recipe,
            coalition=evaluation.coalition,
            replicate=evaluation.replicate,
            purpose=evaluation.purpose,
            status=evaluation.status,
            seconds=round(Clock([evaluation]).worker_seconds, 3),
            worker=evaluation.worker,
            **({} if evaluation.error is None else {"error": last_line(evaluation.error)}),
        )
        with self._lock:
            claim = self._held.pop(evaluation.key, None)
        if claim is not None and evaluation.status == "failed":  # recording a success ends its claim
            self._ledger.release([claim])
        return evaluation

    def _read_ledger(self) -> None:
        news, self._mark = self._ledger.evaluations_since(self._study, self._recipe, self._mark)
        for evaluation in news:
            self._attempted.add(evaluation.key)
            self._on_recorded(evaluation)

    @contextmanager
    def _renewing_claims(self) -> Generator[None]:
        """Renew claims in a thread while the run lasts; release those that are left at the end."""
        thread = threading.Thread(target=self._renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._finished.set()
            thread.join()
            if self._held:
                with suppress(DiffcreditError):  # if the ledger cannot be reached, they expire
                    self._ledger.release(self._held.values())

    def _renew(self) -> None:
        while not self._finished.wait(self._lease / 3):
            with self._lock:
                held = dict(self._held)
            if not held:
                continue
            try:
                kept = self._ledger.renew(held.values(), self._lease)
            except DiffcreditError:  # the ledger cannot be reached; recording will report it
                continue
            with self._lock:
                for key, claim in held.items():
                    if claim not in kept and self._held.get(key) == claim:
                        del self._held[key]
                        event("claim lost", recipe=self._recipe, coalition=claim.coalition, replicate=claim.replicate)
