"""Evaluations on a Ray cluster: one long-lived actor for each share of a node's CPUs and GPUs.

Ray starts the actors and reports when they are gone. What is repeated, and how often, is decided by the pool, as on
one machine. Tasks, evaluations and settings are sent as JSON.
"""

import math
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from diffcredit.errors import UserError
from diffcredit.execution.assignments import WorkerFailure
from diffcredit.execution.backend import Backend
from diffcredit.execution.pool import CHECK, PooledExecutor, WorkerPool, warn
from diffcredit.execution.ray.actor import EvaluationActor
from diffcredit.execution.ray.connection import connected, imported_ray
from diffcredit.execution.ray.worker import RayPayload, RayWorker, ray_payload
from diffcredit.execution.tasks import EvaluatorFactory, check_minimum
from diffcredit.execution.time_limits import check_timeout
from diffcredit.util.events import event


@dataclass(frozen=True)
class RayWorkers(PooledExecutor):
    """Run tasks in workers of a Ray cluster, each with ``threads`` CPUs and ``gpus`` GPUs.

    ``gpus`` may be a fraction: several workers then share a GPU. None means one if the cluster has any when it is
    first seen. ``workers`` is the most there may be; None: as many as the cluster's nodes have room for, including
    nodes that join later. ``address`` is the cluster's, such as ``10.0.0.1:6379``; None: the cluster that runs on
    this machine, or else one that is started here for the run.

    Failed workers, ``retries``, ``timeout`` and memory are treated as by
    :class:`~diffcredit.execution.local.LocalWorkers`; a worker may also be lost with its node. The first Ctrl-C lets
    the evaluations under way finish and then raises KeyboardInterrupt; the second raises it at once.
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
        self._connect()
        with ray_payload(factory) as payload:
            yield payload

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
            self._ray, given = imported_ray(), self.settings.gpus
            self._connection.enter_context(connected(self._ray, self.settings.address))
            self._gpus = float("GPU" in self._ray.cluster_resources()) if given is None else given
            # the pool replaces workers and repeats tasks; Ray would do so silently
            options = {"max_restarts": 0, "max_task_retries": 0}
            resources = {"num_cpus": self.settings.threads, "num_gpus": self._gpus}
            self._actor = self._ray.remote(**options, **resources)(EvaluationActor)

    def _log_nodes(self, nodes: set[str]) -> None:
        for kind, changed in (("node joined", nodes - self._nodes), ("node left", self._nodes - nodes)):
            for node in sorted(changed):
                event(kind, node=node)
        self._nodes = nodes

    def _room(self, resources: dict[str, float]) -> int:
        """Return how many workers a node with these resources has room for."""
        shares = [(resources.get("CPU", 0.0), self.settings.threads), (resources.get("GPU", 0.0), self._gpus)]
        return min(math.floor(there / each + 1e-6) for there, each in shares if each)
