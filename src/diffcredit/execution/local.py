"""Evaluations in several processes of this machine."""

import warnings
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
from diffcredit.execution.assignments import Assignments, Bundle, Loss, Portion, tell_loss
from diffcredit.execution.placement import spread
from diffcredit.execution.process import WorkerProcess, answering
from diffcredit.execution.tasks import ASK_AGAIN, EvaluatorFactory, Task
from diffcredit.execution.time_limits import Watch, check_timeout
from diffcredit.execution.worker import CannotStart, InTrouble, Ready
from diffcredit.ledger import Evaluation
from diffcredit.util.events import event

LOOK = 1.0  # seconds between two looks at how long workers take


@dataclass(frozen=True)
class LocalWorkers:
    """Runs tasks in ``workers`` processes of ``threads`` threads each.

    ``devices`` are CUDA devices as ``CUDA_VISIBLE_DEVICES`` names them, of which each worker sees one, in turn; with
    none it sees what this process sees.

    A worker is given as many tasks at once as its evaluator takes at best. One that dies, that takes longer than
    ``timeout`` seconds for what it was given (None: see :func:`time_limit`) or whose machine is in trouble (out of
    memory or disk) is replaced and its task repeated up to ``retries`` times; then the task comes back as a failed
    evaluation. Of several tasks each is repeated alone first, which does not count. Where memory does not hold as many
    tasks at once, they become fewer; where a device does not serve as many workers as it has, so do they. A factory
    that raises, or workers that keep dying before they have built their evaluator, end the run with an error.
    """

    workers: int
    threads: int = 1
    retries: int = 2
    timeout: float | None = None
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("workers", 1), ("threads", 1), ("retries", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name}: {getattr(self, name)}; must be at least {least}")
        check_timeout(self.timeout)

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        with self.crew() as crew:
            yield from crew.run(factory, tasks)

    @contextmanager
    def crew(self) -> Generator["Crew"]:
        """The same processes for one run after another, whatever they evaluate: a process takes seconds to start."""
        crew = Crew(self)
        try:
            yield crew
        finally:
            crew.dismiss()


class Crew:
    """Workers, each in a place (its device): those that are idle wait for the next run, and a vacant place is filled
    when there is a task for it."""

    def __init__(self, settings: LocalWorkers) -> None:
        self.settings = settings
        # the first is filled first
        self._vacant = spread(settings.workers, settings.devices)[::-1]
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, Bundle] = {}
        self._portion = Portion()
        self._stillborn = 0

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        todo, watch = Assignments(tasks), Watch(self.settings.timeout)
        self._stillborn = 0
        try:
            while True:
                while (self._idle or self._vacant) and (assignment := todo.next()):
                    worker = self._free_worker()
                    self._busy[worker] = Bundle(worker.name, assignment)
                    worker.build(factory, assignment.task, watch.look())
                for worker, bundle in self._busy.items():
                    if worker.owes is None:
                        bundle.fill(todo, self._portion.of(worker.at_once))
                        worker.give(bundle.tasks, watch.look())
                if not self._busy and not todo.left:
                    return
                waiting = todo.left and (self._idle or self._vacant)
                for worker in answering(self._busy, ASK_AGAIN if waiting else LOOK):
                    yield from self._receive(worker, todo, watch)
                for worker, limit in self._overdue(watch):
                    yield from self._give_up(worker, limit, todo, watch)
        finally:
            self._vacant += [worker.device for worker in self._busy]
            WorkerProcess.dismiss(self._busy)
            self._busy.clear()

    def dismiss(self) -> None:
        WorkerProcess.dismiss(self._idle)

    def _free_worker(self) -> WorkerProcess:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            # its answers have counted, and its end is no task's
            tell_loss(Loss(worker.name, "lost", worker.bury()), None, 0.0)
            self._vacant.append(worker.device)
        return WorkerProcess(self.settings.threads, self._vacant.pop())

    def _receive(self, worker: WorkerProcess, todo: Assignments, watch: Watch) -> list[Evaluation]:
        """What a worker answers, if it is an evaluation, or the failed one of a task that no worker survives."""
        seconds = watch.look() - worker.asked
        answer = worker.receive()
        if isinstance(answer, Ready):
            watch.note("evaluator", seconds)
            self._stillborn = 0
            worker.asked = watch.now
            event("worker ready", worker=worker.name, seconds=seconds)
            return []
        if isinstance(answer, CannotStart):
            raise (UserError if answer.users_mistake else DiffcreditError)(answer.message)
        if isinstance(answer, Evaluation):
            bundle = self._busy[worker]
            bundle.answered(answer, seconds)
            if not bundle.unanswered:
                if bundle.representative:
                    watch.note("evaluation", seconds)
                del self._busy[worker]
                self._idle.append(worker)
            return [answer]
        if isinstance(answer, InTrouble):
            worker.kill()
            worker.bury()
            return self._lose(worker, Loss(worker.name, answer.trouble, answer.message), todo, seconds)
        return self._lose(worker, Loss(worker.name, "lost", worker.bury()), todo, seconds)

    def _overdue(self, watch: Watch) -> list[tuple[WorkerProcess, float]]:
        """Those that take too long, and how many seconds they may take."""
        limits = [(worker, watch.limit(worker.owes)) for worker in self._busy if worker.owes]
        return [(worker, limit) for worker, limit in limits if watch.look() - worker.asked > limit]

    def _give_up(self, worker: WorkerProcess, limit: float, todo: Assignments, watch: Watch) -> list[Evaluation]:
        """Kills a worker that takes too long; what it has answered at the last moment counts."""
        seconds, bundle = watch.now - worker.asked, self._busy[worker]
        worker.kill()
        evaluations = [answer for answer in worker.last_words() if isinstance(answer, Evaluation)]
        worker.bury()
        for evaluation in evaluations:
            bundle.answered(evaluation, seconds)
        if not bundle.unanswered:
            del self._busy[worker]
            self._vacant.append(worker.device)
            return evaluations
        reason = f"the worker {worker.name} took longer than {limit:.4g} s and was killed"
        return [*evaluations, *self._lose(worker, Loss(worker.name, "timed out", reason), todo, seconds)]

    def _lose(self, worker: WorkerProcess, loss: Loss, todo: Assignments, seconds: float) -> list[Evaluation]:
        """Leaves the place of a worker that is gone to another, and repeats its tasks or gives them up."""
        bundle, failures = self._busy.pop(worker), []
        begun = worker.owes == "evaluation"
        if begun:
            failures = bundle.lost(loss, seconds, todo, self.settings.retries)
            self._portion.learn(loss, bundle)
        else:
            bundle.put_back(loss, seconds, todo)
        others = [*self._vacant, *(each.device for each in (*self._idle, *self._busy))]
        if others and (bundle.crowded_out() if begun else loss.crowded):
            left = others.count(worker.device)
            where = "here" if worker.device is None else f"on the GPU {worker.device}"
            warnings.warn(
                f"{loss.how}: {left} instead of {left + 1} workers {where} from now on (--workers)",
                DiffcreditWarning,
                stacklevel=2,
            )
        else:
            self._vacant.append(worker.device)
            if not begun:
                self._stillborn += 1
                if self._stillborn > self.settings.retries:
                    raise DiffcreditError(f"workers end before they are ready: {loss.reason}")
        return failures
