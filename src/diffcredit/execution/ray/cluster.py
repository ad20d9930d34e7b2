"""Evaluations on a Ray cluster: one long-lived actor for each share of a node's CPUs and GPUs.

Ray starts the actors and reports when they are gone. What is repeated, and how often, is decided by the pool, as on
one machine. Tasks, evaluations and settings are sent as JSON.
"""

import json
import logging
import math
import os
import socket
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from typing import Any

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.execution.assignments import WorkerFailure
from diffcredit.execution.backend import Backend, BuildError, Message, Ready, Started, Worker
from diffcredit.execution.pool import CHECK, PooledExecutor, WorkerPool, warn
from diffcredit.execution.ray import actor
from diffcredit.execution.ray.actor import evaluation_of, factory_text, owner_of
from diffcredit.execution.ray.own import check_own_cluster, own_cluster, refusal
from diffcredit.execution.shipping import WorkerFiles, marker_file, pack
from diffcredit.execution.tasks import EvaluatorFactory, Task, check_minimum, check_timeout
from diffcredit.execution.versions import package_versions
from diffcredit.ledger import Evaluation
from diffcredit.util.events import event

ANSWER_WITHIN = 10.0  # seconds until a cluster's head counts as absent


@dataclass(frozen=True)
class RayWorkers(PooledExecutor):
    """Run tasks in workers of a Ray cluster, each with ``threads`` CPUs and ``gpus`` GPUs.

    ``gpus`` may be a fraction: several workers then share a GPU. None means one if the cluster has any when it is first
    seen. ``workers`` is the most there may be; None: as many as the nodes have room for, including nodes that join
    later. ``address`` is the cluster's, such as ``10.0.0.1:6379``; None: the one that runs on this machine, or else one
    that is started here for the run.

    Failures are treated as by :class:`~diffcredit.execution.local.LocalWorkers`; a worker may also be lost with its
    node. The first Ctrl-C lets the evaluations under way finish and then raises KeyboardInterrupt; the second raises it
    at once.
    """

    workers: int | None = None
    address: str | None = None
    threads: int = 1
    gpus: float | None = None
    retries: int = 2
    timeout: float | None = None

    def __post_init__(self) -> None:
        check_minimum(self, workers=1, threads=1, gpus=0, retries=0)
        if self.gpus is not None and self.gpus > 1 and not float(self.gpus).is_integer():
            raise UserError(f"gpus: {self.gpus}; a share of one, or a whole number of them, is accepted")
        check_timeout(self.timeout)

    def new_pool(self) -> WorkerPool:
        return WorkerPool(RayBackend(self), self.retries, self.timeout)


class RayPayload:
    """The description from which the workers of one run build their evaluator; ``seen`` are paths that show whether a
    node shares the driver's files."""

    def __init__(self, factory: str, files: WorkerFiles | None, seen: list[str]) -> None:
        self.factory, self.seen = factory, seen
        self.allowed = [] if files is None else list(files.allowed)
        self._files = files
        self._packed: tuple[str, list[Any]] | None = None

    def files(self, ray: Any, worker: str) -> tuple[str, list[Any]]:
        """Return the files for nodes that do not see them: a manifest, and references to pieces in Ray's object store,
        from which each node fetches them once."""
        assert self._files is not None  # no worker misses files where none are named
        if self._files.written:
            raise UserError(
                f"{self._files.written}, but the node of {worker} does not see {self._files.folder}; keep nothing, or "
                "have the results in a folder that all nodes share"
            )
        if self._packed is None:
            pieces: list[Any] = []
            self._packed = pack(self._files, lambda piece: pieces.append(ray.put(piece))), pieces
        return self._packed


class RayWorker(Worker):
    """An actor, and in ``reference`` its latest answer, which may be still to come. It has no name before its first
    answer, for instance while Ray has no room for it."""

    payload: RayPayload

    def __init__(self, ray: Any, actor: Any) -> None:
        super().__init__()
        self._ray, self.actor = ray, actor
        self.ping()
        self.awaiting = "start"

    def ping(self) -> bool:
        self.reference = self.actor.introduce.remote()
        return True

    def build(self, payload: RayPayload) -> None:
        self.reference = self.actor.build.remote(payload.factory, payload.allowed, payload.seen, "", [])

    def evaluate(self, tasks: Sequence[Task]) -> None:
        self.reference = self.actor.evaluate.remote(json.dumps([astuple(task) for task in tasks]))

    def receive(self) -> list[Message]:
        try:
            answer = json.loads(self._ray.get(self.reference))
        except self._ray.exceptions.RayTaskError as error:
            raise DiffcreditError(f"the worker {self.name} failed: {_one_line(error)}") from error
        except self._ray.exceptions.RayError as error:
            return [WorkerFailure(self.name, "lost", f"the worker {self.name} was lost: {_one_line(error)}")]
        evaluations = [evaluation_of(text) for text in answer.get("evaluations", ())]
        kind = answer["kind"]
        if kind == actor.STARTED:
            self._introduced(answer["name"], answer["version"])
            return [Started()]
        if kind == actor.READY:
            return [Ready(answer["at_once"])]
        if kind == actor.EVALUATIONS:
            return list(evaluations)
        if kind == actor.MACHINE_ERROR:
            return [*evaluations, WorkerFailure(self.name, answer["error"], answer["message"])]
        if kind == actor.MISSING_FILES:
            files = self.payload.files(self._ray, self.name)
            payload = self.payload
            self.reference = self.actor.build.remote(payload.factory, payload.allowed, payload.seen, *files)
            return []
        return [BuildError(answer["message"], answer["user_error"])]

    def kill(self) -> list[Evaluation]:
        self._ray.kill(self.actor)
        return []

    def _introduced(self, name: str, version: str | None) -> None:
        if not self.name:
            event("worker started", worker=name)
        self.name = name
        ours = package_versions().get("diffcredit")
        if version != ours:
            node = name.rpartition(":")[0]
            raise UserError(f"the node {node} has diffcredit {version}, this machine {ours}; install the same on all")


class RayBackend(Backend[RayWorker]):
    """Actors of a Ray cluster. Ray starts one as soon as a node has room for it."""

    drains = True

    def __init__(self, settings: RayWorkers) -> None:
        self.settings = settings
        self._connection = ExitStack()
        self._ray: Any = None
        self._actor: Any = None
        self._gpus = 0.0  # of each worker
        self._looked = -math.inf
        self._nodes: set[str] = set()
        self._wanted = 0
        self._retired = 0

    @property
    def places(self) -> int:
        return self._wanted  # one lost node takes many workers with it

    @contextmanager
    def payload(self, factory: EvaluatorFactory) -> Generator[RayPayload]:
        """Describe ``factory``, whose owner may know the files that its evaluators read, as a recipe does."""
        self._connect()
        text, worker_files = factory_text(factory), getattr(owner_of(factory), "worker_files", None)
        if worker_files is None:
            yield RayPayload(text, None, [])
            return
        files: WorkerFiles = worker_files()
        with marker_file(files.folder) as marker:
            yield RayPayload(text, files, [str(marker), *map(str, files.roots)])

    def recruit(self, workers: Sequence[RayWorker]) -> list[RayWorker]:
        now = time.monotonic()
        if now - self._looked > CHECK:
            self._looked = now
            nodes = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
            self._log_nodes({f"{node['NodeManagerHostname']} {key}" for key, node in nodes.items()})
            room = sum(self._room(node["Resources"]) for node in nodes.values())
            if room == 0 and self._wanted == 0:
                gpus = f" and {self._gpus:g} GPUs" if self._gpus else ""
                warn(f"no node has {self.settings.threads} CPUs{gpus} for a worker yet; waiting for one")
            self._wanted = max(1, (self.settings.workers or room) - self._retired)
        missing = range(len(workers), self._wanted)
        return [RayWorker(self._ray, self._actor.remote(self.settings.threads)) for _ in missing]

    def wait(self, workers: Sequence[RayWorker], seconds: float) -> list[RayWorker]:
        if not workers:
            time.sleep(seconds)
            return []
        references = [worker.reference for worker in workers]
        ready, _ = self._ray.wait(references, num_returns=1, timeout=seconds)
        if ready and len(references) > 1:  # all that are by now, so that none waits behind the quickest
            ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        answered = set(ready)
        return [worker for worker in workers if worker.reference in answered]

    def retire(self, worker: RayWorker, failure: WorkerFailure) -> bool:
        if self._gpus >= 1 or self._wanted == 1:  # others share nothing with it, or there are none
            return False
        self._retired += 1
        self._wanted -= 1
        warn(f"{failure.kind}: {self._wanted} instead of {self._wanted + 1} workers from now on (--workers)")
        return True

    def end(self, workers: Sequence[RayWorker]) -> None:
        for worker in workers:
            worker.kill()
            event("worker dismissed", worker=worker.name)

    def close(self) -> None:
        """Leave the cluster."""
        self._connection.close()

    def _connect(self) -> None:
        if self._ray is None:
            self._ray, given = _imported_ray(), self.settings.gpus
            self._connection.enter_context(_connected(self._ray, self.settings.address))
            self._gpus = float("GPU" in self._ray.cluster_resources()) if given is None else given
            # the pool replaces workers and repeats tasks; Ray would do so silently
            options = {"max_restarts": 0, "max_task_retries": 0}
            resources = {"num_cpus": self.settings.threads, "num_gpus": self._gpus}
            self._actor = self._ray.remote(**options, **resources)(actor.EvaluationActor)

    def _log_nodes(self, nodes: set[str]) -> None:
        for kind, changed in (("node joined", nodes - self._nodes), ("node left", self._nodes - nodes)):
            for node in sorted(changed):
                event(kind, node=node)
        self._nodes = nodes

    def _room(self, resources: dict[str, float]) -> int:
        """Return how many workers a node with these resources has room for."""
        shares = [(resources.get("CPU", 0.0), self.settings.threads), (resources.get("GPU", 0.0), self._gpus)]
        return min(math.floor(there / each + 1e-6) for there, each in shares if each)


def _imported_ray() -> Any:
    # before it is imported; set it to 1 to send Ray's makers usage reports
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise UserError('a Ray cluster needs ray: pip install "diffcredit[cluster]"') from None
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Generator[None]:
    """Connect to the cluster within. An existing connection is used, and stays."""
    if ray.is_initialized():
        yield
        return
    if address is not None:
        _check_address(address)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    with ExitStack() as whole:
        try:
            try:
                ray.init(address=address or "auto", **quiet)
            except ConnectionError:
                if address is not None:
                    raise
                whole.enter_context(own_cluster())
                ray.init(address="local", include_dashboard=False, **quiet)
                check_own_cluster(ray)
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            raise UserError(refusal(address, _one_line(error))) from None
        try:
            yield
        finally:
            ray.shutdown()


def _check_address(address: str) -> None:
    """Refuse an address at which nobody answers; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(f"--address {address}: HOST:PORT is accepted, such as 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), ANSWER_WITHIN).close()
    except OSError as error:
        raise UserError(f"--address {address}: nobody answers there ({error}); is the cluster's head up?") from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]
