"""Several drivers of one study: each evaluates what no other has, or is about to.

A driver claims a task just before a worker begins it, hears from the ledger what the others recorded, and comes back
later to what they hold: if one of them is gone, its claims expire and the others take its tasks over. A driver that
was only away, as a laptop that slept, brings its result late, and the ledger judges it by its value.
"""

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from diffcredit.errors import DiffcreditError
from diffcredit.execution import EvaluatorFactory, Executor, Task
from diffcredit.execution.tasks import worker_name
from diffcredit.ledger import Claim, Evaluation, Ledger, NonDeterminism
from diffcredit.ledger.clock import worker_seconds
from diffcredit.util.events import event
from diffcredit.util.sanitize import last_line

LEASE = 120.0  # seconds for which a claim is good; it is renewed three times as often
AGAIN = 0.1  # of a lease passes between two looks at a task that another driver holds

_Key = tuple[str, int]  # a task's coalition and replicate


class Driver:
    """Makes evaluations of one recipe of a study and records them.

    ``tell`` hears of every evaluation recorded after ``mark`` (see :meth:`Ledger.evaluations_since`), in the order of
    the ledger, whoever made it: before each task is chosen, and before each evaluation is yielded.
    """

    def __init__(
        self,
        ledger: Ledger,
        study: str,
        recipe: str,
        tell: Callable[[Evaluation], object],
        mark: int,
        lease: float = LEASE,
    ) -> None:
        self._ledger, self._study, self._recipe, self._tell, self._mark = ledger, study, recipe, tell, mark
        self._lease = lease
        self._holder = f"{worker_name()}:{uuid.uuid4().hex[:8]}"
        self._held: dict[_Key, Claim] = {}
        self._lock = threading.Lock()  # of what is held, which another thread renews
        self._left = threading.Event()
        self._attempted: set[_Key] = set()

    def run(self, executor: Executor, factory: EvaluatorFactory, wanted: Iterable[Task]) -> Iterator[Evaluation]:
        """Evaluates what is ``wanted`` and nobody else evaluates, and yields each evaluation made here once it is
        recorded; ends when all that is wanted has been tried, here or elsewhere since the beginning."""
        with self._renewing():
            for evaluation in executor.run(factory, self._tasks(wanted)):
                recorded = self._record(evaluation)
                self._hear()
                yield recorded

    def _tasks(self, wanted: Iterable[Task]) -> Iterator[Task | None]:
        """Tasks as they can be claimed; None where others hold all that is left."""
        fresh = iter(wanted)
        postponed: dict[Task, float] = {}  # when to look at it again
        more = True
        while more or postponed:
            self._hear()
            postponed = {task: due for task, due in postponed.items() if _key(task) not in self._attempted}
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
            elif not self._known(task):
                if task not in postponed:
                    event("claim postponed", recipe=self._recipe, coalition=task.coalition, replicate=task.replicate)
                postponed[task] = time.monotonic() + AGAIN * self._lease

    def _claim(self, task: Task) -> bool:
        claim = self._ledger.claim(self._study, self._recipe, *_key(task), self._holder, self._lease, _gone)
        if claim is None:
            return False
        with self._lock:
            self._held[_key(task)] = claim
        return True

    def _known(self, task: Task) -> bool:
        """Whether a task that cannot be claimed is done; if that was under another purpose before this run began, the
        evaluation serves this one too."""
        done = self._ledger.done(self._study, self._recipe, *_key(task))
        self._hear()
        if done is not None and _key(task) not in self._attempted:
            self._attempted.add(_key(task))
            self._tell(replace(done, purpose=task.purpose))
        return done is not None

    def _record(self, evaluation: Evaluation) -> Evaluation:
        """What is in the ledger of it. One that contradicts an earlier one stands beside it as a failed attempt."""
        try:
            self._ledger.record(self._study, self._recipe, evaluation)
        except NonDeterminism as error:
            evaluation = replace(evaluation, status="failed", values=(), error=str(error))
            self._ledger.record(self._study, self._recipe, evaluation)
            event("non-determinism", level=logging.WARNING, recipe=self._recipe, error=str(error))
        self._tell_recorded(evaluation)
        with self._lock:
            claim = self._held.pop(evaluation.key, None)
        if claim is not None and evaluation.status == "failed":  # that of a success is gone already
            self._ledger.release([claim])
        return evaluation

    def _tell_recorded(self, evaluation: Evaluation) -> None:
        event(
            "evaluation recorded",
            level=logging.INFO if evaluation.status == "done" else logging.WARNING,
            recipe=self._recipe,
            coalition=evaluation.coalition,
            replicate=evaluation.replicate,
            purpose=evaluation.purpose,
            status=evaluation.status,
            seconds=round(worker_seconds([evaluation]), 3),
            worker=evaluation.worker,
            **({} if evaluation.error is None else {"error": last_line(evaluation.error)}),
        )

    def _hear(self) -> None:
        news, self._mark = self._ledger.evaluations_since(self._study, self._recipe, self._mark)
        for evaluation in news:
            self._attempted.add(evaluation.key)
            self._tell(evaluation)

    @contextmanager
    def _renewing(self) -> Generator[None]:
        """Renews what is held while the work goes on, and gives back what is left of it."""
        thread = threading.Thread(target=self._renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._left.set()
            thread.join()
            if self._held:
                with suppress(DiffcreditError):  # where the ledger is away they expire
                    self._ledger.release(self._held.values())

    def _renew(self) -> None:
        while not self._left.wait(self._lease / 3):
            with self._lock:
                held = dict(self._held)
            if not held:
                continue
            try:
                kept = self._ledger.renew(held.values(), self._lease)
            except DiffcreditError:  # the ledger is away; the work goes on, and recording it will tell
                continue
            with self._lock:
                for key, claim in held.items():
                    if claim not in kept and self._held.get(key) == claim:
                        del self._held[key]
                        event("claim lost", recipe=self._recipe, coalition=claim.coalition, replicate=claim.replicate)


def _gone(holder: str) -> bool:
    """Whether a driver ran on this machine and does no more, as one that was killed: nobody needs to wait until its
    claims expire."""
    machine, pid, _ = holder.rsplit(":", 2)
    if os.name != "posix" or worker_name(int(pid)) != f"{machine}:{pid}":
        return False
    try:
        os.kill(int(pid), 0)  # which does nothing but look
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody else's process
        pass
    return False


def _key(task: Task) -> _Key:
    return task.coalition, task.replicate
