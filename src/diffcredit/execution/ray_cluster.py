"""Evaluations on a Ray cluster: one long-lived worker for each share of a node's CPUs and GPUs.

Ray starts the workers and tells when they are gone; what is repeated, and how often, is decided here, so that a task
means the same as on one machine. Tasks, evaluations and settings travel as JSON text.
"""

import json
import logging
import math
import os
import socket
import time
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
from diffcredit.execution.interrupts import Interrupts, gentle_interrupts
from diffcredit.execution.ray_worker import LACKS_FILES, READY, USERS_MISTAKE, RayWorker
from diffcredit.execution.shipping import WorkerFiles, marked, pack
from diffcredit.execution.tasks import ASK_AGAIN, EvaluatorFactory, Task, failed_evaluation, utc_now
from diffcredit.execution.travel import evaluation_of, factory_text, owner_of, task_text
from diffcredit.execution.versions import package_versions
from diffcredit.ledger import Evaluation

LOOK_AROUND = 1.0
"""Seconds between two looks at the nodes; also the longest until an interrupt is noticed."""
ANSWER_WITHIN = 10.0  # seconds, of a cluster's head
_NO_MORE = object()  # a run's tasks have ended


@dataclass(frozen=True)
class RayWorkers:
    """Runs tasks in workers of a Ray cluster, each with ``threads`` CPUs and ``gpus`` GPUs (a fraction: several
    workers share one; None: one where the cluster has any when it is first seen).

    ``workers`` is how many at most; None: as many as there is room for on the cluster's nodes, those that join later
    included. ``address`` is the cluster's, such as ``10.0.0.1:6379``; None: the one that runs on this machine, or else
    one that is started here for the run. A worker that is lost with its process or node is replaced and its task
    repeated up to ``retries`` times; then the task comes back as a failed evaluation. What an evaluator raises is not
    repeated. The first Ctrl-C lets the evaluations under way finish and then raises KeyboardInterrupt; the second
    raises it at once.
    """

    workers: int | None = None
    address: str | None = None
    threads: int = 1
    gpus: float | None = None
    retries: int = 2

    def __post_init__(self) -> None:
        for name, least in (("workers", 1), ("threads", 1), ("gpus", 0), ("retries", 0)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UserError(f"{name}: {value}; must be at least {least}")
        if self.gpus is not None and self.gpus > 1 and not float(self.gpus).is_integer():
            raise UserError(f"gpus: {self.gpus}; a share of one, or a whole number of them, is accepted")

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
    """Workers on a cluster: those that are ``starting``, which Ray has yet to find room for, and those that are
    ``idle``."""

    def __init__(self, settings: RayWorkers) -> None:
        self.settings = settings
        self._starting: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._connection = ExitStack()
        self._ray: Any = None
        self._actor: Any = None
        self._gpus = 0.0  # of each worker
        self._looked = -math.inf
        self._wanted = 0

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        fresh = iter(tasks)
        first = next(fresh, _NO_MORE)
        if first is _NO_MORE:  # nobody is called for nothing
            return
        self._connect()
        with gentle_interrupts() as interrupts, _load(self._ray, factory) as load:
            yield from self._serve(load, chain([first], fresh), interrupts)

    def dismiss(self) -> None:
        """Ends all workers and leaves the cluster."""
        self._end([*self._starting, *self._idle])
        self._connection.close()

    def _serve(self, load: "_Load", fresh: Iterator[Any], interrupts: Interrupts) -> Iterator[Evaluation]:
        repeated: deque[_Assignment] = deque()
        busy: dict[_Worker, _Assignment] = {}
        more, told, stillborn = True, False, 0
        try:
            while True:
                waiting = False  # for a task that may be had soon
                self._look_after_idle()
                if not interrupts.asked and (more or repeated):
                    self._enlist(len(busy))
                while self._idle and not waiting and not interrupts.asked:
                    if repeated:
                        assignment = repeated.popleft()
                    else:
                        task: Any = next(fresh, _NO_MORE) if more else _NO_MORE
                        if task is _NO_MORE:
                            more = False
                            break
                        if task is None:
                            waiting = True
                            continue
                        assignment = _Assignment(task)
                    worker = self._idle.pop()
                    busy[worker] = assignment
                    worker.give(load, assignment.task)
                if not busy and interrupts.asked:
                    raise KeyboardInterrupt
                if not busy and not more and not repeated:
                    return
                if interrupts.asked and not told:
                    told = True
                    _tell(f"stopping: what is under way ({len(busy)}) is finished first; Ctrl-C again stops it")
                for worker in self._answering([*busy, *self._starting], ASK_AGAIN if waiting else LOOK_AROUND):
                    try:
                        evaluation = worker.receive(self._ray)
                    except _WorkerLost as lost:
                        if worker in busy:
                            assignment = busy.pop(worker)
                            if worker.ready:
                                assignment.deaths += 1
                            if assignment.deaths > self.settings.retries:
                                yield assignment.failure(worker, str(lost))
                            else:
                                repeated.append(assignment)
                        else:
                            self._starting.remove(worker)
                        stillborn += not worker.ready
                        # every place may be tried anew: one lost node takes many workers with it
                        if stillborn >= (self.settings.retries + 1) * self._wanted:
                            raise DiffcreditError(f"workers end before they are ready: {lost}") from None
                        continue
                    if worker.ready:
                        stillborn = 0
                    if worker in self._starting:
                        self._starting.remove(worker)
                        self._idle.append(worker)
                    elif evaluation is not None:
                        del busy[worker]
                        self._idle.append(worker)
                        yield evaluation
        finally:
            self._end([*busy])

    def _connect(self) -> None:
        if self._ray is None:
            self._ray, given = _imported_ray(), self.settings.gpus
            self._connection.enter_context(_connected(self._ray, self.settings.address))
            self._gpus = float("GPU" in self._ray.cluster_resources()) if given is None else given
            # replaced and repeated here, not by Ray, which would not tell
            options = {"max_restarts": 0, "max_task_retries": 0}
            resources = {"num_cpus": self.settings.threads, "num_gpus": self._gpus}
            self._actor = self._ray.remote(**options, **resources)(RayWorker)

    def _enlist(self, busy: int) -> None:
        """Calls for as many workers as are wanted; Ray starts those that there is no room for yet when there is."""
        now = time.monotonic()
        if now - self._looked > LOOK_AROUND:
            self._looked = now
            room = sum(self._room(node["Resources"]) for node in self._ray.nodes() if node["Alive"])
            if room == 0 and self._wanted == 0:
                _tell(f"no node of the cluster has {self._share()} yet, which a worker needs; waiting for one")
            self._wanted = self.settings.workers or max(1, room)
        while len(self._starting) + len(self._idle) + busy < self._wanted:
            self._starting.append(_Worker(self._actor.remote(self.settings.threads)))

    def _look_after_idle(self) -> None:
        """Asks those that had nothing to do for a while whether they are there: the loss of one is not its next
        task's."""
        for worker in [each for each in self._idle if time.monotonic() - each.since > LOOK_AROUND]:
            self._idle.remove(worker)
            self._starting.append(worker)
            worker.introduce()

    def _room(self, resources: dict[str, float]) -> int:
        """How many workers a node with these resources has room for."""
        shares = [(resources.get("CPU", 0.0), self.settings.threads), (resources.get("GPU", 0.0), self._gpus)]
        return min(math.floor(there / each + 1e-6) for there, each in shares if each)

    def _share(self) -> str:
        gpus = f" and {self._gpus:g} GPUs" if self._gpus else ""
        return f"{self.settings.threads} CPUs{gpus}"

    def _answering(self, workers: "list[_Worker]", seconds: float) -> "list[_Worker]":
        """Waits until a worker answers or is lost, or so long; those that are."""
        if not workers:
            time.sleep(seconds)
            return []
        references = [worker.reference for worker in workers]
        ready, _ = self._ray.wait(references, num_returns=1, timeout=seconds)
        if ready:  # the others that are by now, so that no one waits for its turn behind the quickest
            ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        answered = set(ready)
        return [worker for worker in workers if worker.reference in answered]

    def _end(self, workers: "list[_Worker]") -> None:
        for worker in workers:
            self._ray.kill(worker.actor)


@dataclass
class _Assignment:
    """A task, since when it is under way, and how many workers were lost over it."""

    task: Task
    started: str = field(default_factory=utc_now)
    deaths: int = 0

    def failure(self, worker: "_Worker", ending: str) -> Evaluation:
        error = f"{ending}; {self.deaths} workers were lost over this task"
        return failed_evaluation(self.task, error, worker.name, self.started)


class _WorkerLost(Exception):
    """A worker is gone; the message says how."""


class _Worker:
    """A worker as the driver sees it: ``reference`` stands for the answer that it owes."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.name = ""
        self.ready = False  # whether its evaluator is built
        self._load: _Load | None = None
        self._task: Task | None = None
        self.since = 0.0  # when it last answered
        self.introduce()

    def introduce(self) -> None:
        """Asks whether it is there."""
        self.reference = self.actor.introduce.remote()
        self._task = None

    def give(self, load: "_Load", task: Task) -> None:
        self._task = task
        if self._load is load:
            self.reference = self.actor.evaluate.remote(task_text(task))
        else:
            self._load, self.ready = load, False
            self.reference = self.actor.build.remote(load.factory, load.seen, "", [])

    def receive(self, ray: Any) -> Evaluation | None:
        """The evaluation of the task that it was given; None for an answer that comes before."""
        try:
            text = ray.get(self.reference)
        except ray.exceptions.RayTaskError as error:
            raise DiffcreditError(f"the worker {self.name} failed: {_one_line(error)}") from error
        except ray.exceptions.RayError as error:
            raise _WorkerLost(f"the worker {self.name} was lost: {_one_line(error)}") from None
        self.since = time.monotonic()
        if self._task is not None and self.ready:
            return evaluation_of(text)
        answer = json.loads(text)
        if self._task is None or self._load is None:
            self._greet(**answer)
        elif answer["kind"] == READY:
            self.ready = True
            self.reference = self.actor.evaluate.remote(task_text(self._task))
        elif answer["kind"] == LACKS_FILES:
            waybill, pieces = self._load.parcel(ray, self.name)
            self.reference = self.actor.build.remote(self._load.factory, self._load.seen, waybill, pieces)
        else:
            raise (UserError if answer["kind"] == USERS_MISTAKE else DiffcreditError)(answer["message"])
        return None

    def _greet(self, name: str, version: str | None) -> None:
        self.name = name
        ours = package_versions().get("diffcredit")
        if version != ours:
            raise UserError(
                f"the node {name.rpartition(':')[0]} has diffcredit {version}, this machine {ours}; install the same "
                "on all"
            )


class _Load:
    """What workers of one run build their evaluator from."""

    def __init__(self, factory: str, files: WorkerFiles | None, seen: list[str]) -> None:
        self.factory, self.seen = factory, seen
        self._files = files
        self._parcel: tuple[str, list[Any]] | None = None

    def parcel(self, ray: Any, worker: str) -> tuple[str, list[Any]]:
        """The files for nodes that do not see them: a waybill, and references to its pieces in Ray's object store,
        from which each node fetches them once."""
        assert self._files is not None  # no worker lacks files where none are named
        if self._files.written:
            raise UserError(
                f"{self._files.written}, but the node of {worker} does not see {self._files.folder}; keep nothing, or "
                "have the results in a folder that all nodes share"
            )
        if self._parcel is None:
            pieces = []
            packing = pack(self._files)
            while True:
                try:
                    pieces.append(ray.put(next(packing)))
                except StopIteration as packed:
                    self._parcel = packed.value.text, pieces
                    break
        return self._parcel


@contextmanager
def _load(ray: Any, factory: EvaluatorFactory) -> Generator[_Load]:
    """``factory``, whose owner may say which files its evaluators read (``worker_files()``)."""
    text = factory_text(factory)
    find = getattr(owner_of(factory), "worker_files", None)
    if find is None:
        yield _Load(text, None, [])
        return
    files: WorkerFiles = find()
    with marked(files.folder) as mark:
        yield _Load(text, files, [str(mark), *map(str, files.roots)])


def _imported_ray() -> Any:
    # before it is imported; whoever wants Ray's makers to hear of the run sets it to 1
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise UserError('a Ray cluster needs ray: pip install "diffcredit[cluster]"') from None
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Generator[None]:
    """A connection to the cluster within; one that is there already is used, and stays."""
    if ray.is_initialized():
        yield
        return
    if address is not None:
        _knock(address)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        try:
            ray.init(address=address or "auto", **quiet)
        except ConnectionError:
            if address is not None:
                raise
            ray.init(address="local", include_dashboard=False, **quiet)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise UserError(f"--address {address}: no Ray cluster can be reached there ({_one_line(error)})") from None
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Refuses an address at which nobody answers; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(f"--address {address}: HOST:PORT is accepted, such as 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), ANSWER_WITHIN).close()
    except OSError as error:
        raise UserError(f"--address {address}: nobody answers there ({error}); is the cluster's head up?") from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]


def _tell(message: str) -> None:
    warnings.warn(message, DiffcreditWarning, stacklevel=2)
