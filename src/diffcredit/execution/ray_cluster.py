"""Evaluations on a Ray cluster: one long-lived worker for each share of a node's CPUs and GPUs.

Ray starts the workers and tells when they are gone; what is repeated, and how often, is decided here, so that a task
means the same as on one machine. Tasks, evaluations and settings travel as JSON text.
"""

import math
import time
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
from diffcredit.execution.assignments import Assignments, Bundle, Loss, Portion, tell_loss
from diffcredit.execution.interrupts import Interrupts, gentle_interrupts
from diffcredit.execution.ray_connection import connected, imported_ray
from diffcredit.execution.ray_remote import Load, RemoteWorker, WorkerLost, load_of
from diffcredit.execution.ray_worker import RayWorker
from diffcredit.execution.tasks import ASK_AGAIN, EvaluatorFactory, Task
from diffcredit.execution.time_limits import Watch, check_timeout
from diffcredit.ledger import Evaluation
from diffcredit.util.events import event

LOOK_AROUND = 1.0
"""Seconds between two looks at the nodes; also the longest until an interrupt is noticed."""
_NO_MORE = object()  # a run's tasks have ended


@dataclass(frozen=True)
class RayWorkers:
    """Runs tasks in workers of a Ray cluster, each with ``threads`` CPUs and ``gpus`` GPUs (a fraction: several
    workers share one; None: one where the cluster has any when it is first seen).

    ``workers`` is how many at most; None: as many as there is room for on the cluster's nodes, those that join later
    included. ``address`` is the cluster's, such as ``10.0.0.1:6379``; None: the one that runs on this machine, or else
    one that is started here for the run. A worker is given as many tasks at once as its evaluator takes at best. One
    that is lost with its process or node, that takes longer than ``timeout`` seconds for what it was given (None: see
    :func:`time_limit`) or whose machine is in trouble (out of memory or disk) is replaced and its task repeated up to
    ``retries`` times; then the task comes back as a failed evaluation. Of several tasks each is repeated alone first,
    which does not count. Where memory does not hold as many tasks at once, or as many workers as share it, they become
    fewer. What else an evaluator raises is not repeated. The first Ctrl-C lets the evaluations under way finish and
    then raises KeyboardInterrupt; the second raises it at once.
    """

    workers: int | None = None
    address: str | None = None
    threads: int = 1
    gpus: float | None = None
    retries: int = 2
    timeout: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("workers", 1), ("threads", 1), ("gpus", 0), ("retries", 0)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UserError(f"{name}: {value}; must be at least {least}")
        if self.gpus is not None and self.gpus > 1 and not float(self.gpus).is_integer():
            raise UserError(f"gpus: {self.gpus}; a share of one, or a whole number of them, is accepted")
        check_timeout(self.timeout)

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        with self.crew() as crew:
            yield from crew.run(factory, tasks)

    @contextmanager
    def crew(self) -> Generator["RayCrew"]:
        """The same workers for one run after another, whatever they evaluate."""
        crew = RayCrew(self)
        try:
            yield crew
        finally:
            crew.dismiss()


class RayCrew:
    """Workers on a cluster: those that are starting, which Ray has yet to find room for, those that are idle, and those
    that are busy."""

    def __init__(self, settings: RayWorkers) -> None:
        self.settings = settings
        self._starting: list[RemoteWorker] = []
        self._idle: list[RemoteWorker] = []
        self._busy: dict[RemoteWorker, Bundle] = {}
        self._portion = Portion()
        self._connection = ExitStack()
        self._ray: Any = None
        self._actor: Any = None
        self._gpus = 0.0  # of each worker
        self._looked = -math.inf
        self._nodes: set[str] = set()
        self._wanted = 0
        self._fewer = 0  # workers than there is room for, since memory does not hold them
        self._stillborn = 0

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        fresh = iter(tasks)
        first = next(fresh, _NO_MORE)
        if not (first is None or isinstance(first, Task)):  # nobody is called for nothing
            return
        self._connect()
        with gentle_interrupts() as interrupts, load_of(factory) as load:
            yield from self._serve(load, Assignments(chain([first], fresh)), interrupts)

    def dismiss(self) -> None:
        """Ends all workers and leaves the cluster."""
        self._end([*self._starting, *self._idle])
        self._connection.close()

    def _serve(self, load: Load, todo: Assignments, interrupts: Interrupts) -> Iterator[Evaluation]:
        watch = Watch(self.settings.timeout)
        watch.note("name", 0.0)  # whether it is there, a worker tells at once
        told, self._stillborn = False, 0
        self._call(self._idle, watch)
        for worker in self._starting:
            worker.asked = watch.now  # by this run's clock
        try:
            while True:
                self._call([each for each in self._idle if watch.look() - each.asked > LOOK_AROUND], watch)
                if not interrupts.asked and todo.left:
                    self._enlist(watch)
                while self._idle and not interrupts.asked and (assignment := todo.next()):
                    worker = self._idle.pop()
                    self._busy[worker] = Bundle(worker.name, assignment)
                    worker.build(load, watch.look())
                for worker, bundle in self._busy.items():
                    if worker.owes is None:
                        bundle.fill(todo, 1 if interrupts.asked else self._portion.of(worker.at_once))
                        worker.give(bundle.tasks, watch.look())
                if not self._busy and interrupts.asked:
                    raise KeyboardInterrupt
                if not self._busy and not todo.left:
                    return
                if interrupts.asked and not told:
                    told = True
                    count = sum(len(bundle.unanswered) for bundle in self._busy.values())
                    _tell(f"stopping: what is under way ({count}) is finished first; Ctrl-C again stops it")
                waiting = todo.left and self._idle
                for worker in self._answering(ASK_AGAIN if waiting else LOOK_AROUND):
                    yield from self._receive(worker, todo, watch)
                for worker, limit in self._overdue(watch):
                    yield from self._give_up(worker, limit, todo, watch)
        finally:
            self._end(self._busy)
            self._busy.clear()

    def _connect(self) -> None:
        if self._ray is None:
            self._ray, given = imported_ray(), self.settings.gpus
            self._connection.enter_context(connected(self._ray, self.settings.address))
            self._gpus = float("GPU" in self._ray.cluster_resources()) if given is None else given
            # replaced and repeated here, not by Ray, which would not tell
            options = {"max_restarts": 0, "max_task_retries": 0}
            resources = {"num_cpus": self.settings.threads, "num_gpus": self._gpus}
            self._actor = self._ray.remote(**options, **resources)(RayWorker)

    def _enlist(self, watch: Watch) -> None:
        """Calls for as many workers as are wanted; Ray starts those that there is no room for yet when there is."""
        now = time.monotonic()
        if now - self._looked > LOOK_AROUND:
            self._looked = now
            nodes = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
            self._tell_nodes({f"{node['NodeManagerHostname']} {key}" for key, node in nodes.items()})
            room = sum(self._room(node["Resources"]) for node in nodes.values())
            if room == 0 and self._wanted == 0:
                _tell(f"no node of the cluster has {self._share()} yet, which a worker needs; waiting for one")
            self._wanted = max(1, (self.settings.workers or room) - self._fewer)
        while len(self._starting) + len(self._idle) + len(self._busy) < self._wanted:
            self._starting.append(RemoteWorker(self._actor.remote(self.settings.threads), watch.now))

    def _tell_nodes(self, nodes: set[str]) -> None:
        for kind, changed in (("node joined", nodes - self._nodes), ("node left", self._nodes - nodes)):
            for node in sorted(changed):
                event(kind, node=node)
        self._nodes = nodes

    def _call(self, idle: list[RemoteWorker], watch: Watch) -> None:
        """Asks those that had nothing to do for a while whether they are there: the loss of one is not its next
        task's."""
        for worker in list(idle):
            self._idle.remove(worker)
            self._starting.append(worker)
            worker.introduce(watch.now)

    def _room(self, resources: dict[str, float]) -> int:
        """How many workers a node with these resources has room for."""
        shares = [(resources.get("CPU", 0.0), self.settings.threads), (resources.get("GPU", 0.0), self._gpus)]
        return min(math.floor(there / each + 1e-6) for there, each in shares if each)

    def _share(self) -> str:
        gpus = f" and {self._gpus:g} GPUs" if self._gpus else ""
        return f"{self.settings.threads} CPUs{gpus}"

    def _answering(self, seconds: float) -> list[RemoteWorker]:
        """Waits until a worker answers or is lost, or so long; those that are."""
        workers = [*self._busy, *self._starting]
        if not workers:
            time.sleep(seconds)
            return []
        references = [worker.reference for worker in workers]
        ready, _ = self._ray.wait(references, num_returns=1, timeout=seconds)
        if ready:  # the others that are by now, so that no one waits for its turn behind the quickest
            ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        answered = set(ready)
        return [worker for worker in workers if worker.reference in answered]

    def _receive(self, worker: RemoteWorker, todo: Assignments, watch: Watch) -> Sequence[Evaluation]:
        """The evaluations that a worker answers, and the failed one of a task that no worker survives."""
        was_ready, seconds, bundle = worker.ready, watch.look() - worker.asked, self._busy.get(worker)
        loss = None
        try:
            evaluations = worker.receive(self._ray, watch.now)
        except WorkerLost as lost:
            self._ray.kill(worker.actor)  # one in trouble is still there, with all that it holds
            loss, evaluations = lost.loss, lost.evaluations
        if bundle is not None:
            for evaluation in evaluations:
                bundle.answered(evaluation, seconds)
        if loss is not None:
            return [*evaluations, *self._lose(worker, loss, todo, seconds)]
        if worker.ready:
            self._stillborn = 0
        if worker.ready > was_ready:
            watch.note("evaluator", seconds)
        if bundle is None:
            self._starting.remove(worker)
            self._idle.append(worker)
        elif evaluations:
            if bundle.representative:
                watch.note("evaluation", seconds)
            del self._busy[worker]
            self._idle.append(worker)
        return evaluations

    def _overdue(self, watch: Watch) -> list[tuple[RemoteWorker, float]]:
        """Those that take too long, and how many seconds they may take; Ray alone knows how long it takes to find room
        for one."""
        there = [worker for worker in (*self._busy, *self._starting) if worker.name]
        limits = [(worker, watch.limit(worker.owes)) for worker in there if worker.owes]
        return [(worker, limit) for worker, limit in limits if watch.look() - worker.asked > limit]

    def _give_up(self, worker: RemoteWorker, limit: float, todo: Assignments, watch: Watch) -> Sequence[Evaluation]:
        """Kills a worker that takes too long; if it has answered at the last moment, that counts."""
        if self._ray.wait([worker.reference], timeout=0)[0]:
            return self._receive(worker, todo, watch)
        self._ray.kill(worker.actor)
        reason = f"the worker {worker.name} took longer than {limit:.4g} s and was killed"
        return self._lose(worker, Loss(worker.name, "timed out", reason), todo, watch.now - worker.asked)

    def _lose(self, worker: RemoteWorker, loss: Loss, todo: Assignments, seconds: float) -> list[Evaluation]:
        """Repeats the tasks of a worker that is gone, or gives them up."""
        bundle, failures = self._busy.pop(worker, None), []
        if bundle is None:
            tell_loss(loss, None, seconds)
            self._starting.remove(worker)
        elif worker.ready:
            failures = bundle.lost(loss, seconds, todo, self.settings.retries)
            self._portion.learn(loss, bundle)
        else:
            bundle.put_back(loss, seconds, todo)
        shared = self._gpus < 1 and self._wanted > 1
        if bundle and shared and (bundle.crowded_out() if worker.ready else loss.crowded):
            self._fewer += 1
            self._wanted -= 1
            _tell(f"{loss.how}: {self._wanted} instead of {self._wanted + 1} workers from now on (--workers)")
        elif not worker.ready:
            self._stillborn += 1
            # every place may be tried anew: one lost node takes many workers with it
            if self._stillborn >= (self.settings.retries + 1) * self._wanted:
                raise DiffcreditError(f"workers end before they are ready: {loss.reason}")
        return failures

    def _end(self, workers: Iterable[RemoteWorker]) -> None:
        for worker in workers:
            self._ray.kill(worker.actor)
            event("worker dismissed", worker=worker.name)


def _tell(message: str) -> None:
    warnings.warn(message, DiffcreditWarning, stacklevel=2)
