"""A worker of a Ray cluster as the pool sees it, and what it builds its evaluator from."""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from typing import Any, Protocol, runtime_checkable

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.execution.assignments import WorkerFailure
from diffcredit.execution.backend import BuildError, Message, Ready, Started, Worker
from diffcredit.execution.ray.actor import EVALUATIONS, MACHINE_ERROR, MISSING_FILES, READY, STARTED
from diffcredit.execution.ray.connection import one_line
from diffcredit.execution.ray.serialization import evaluation_of, factory_text, owner_of
from diffcredit.execution.shipping import WorkerFiles, marker_file, pack
from diffcredit.execution.tasks import EvaluatorFactory, Task
from diffcredit.execution.versions import package_versions
from diffcredit.ledger import Evaluation
from diffcredit.util.events import event


class RayWorker(Worker):
    """An actor and ``reference``, its latest answer, which may be yet to come. It has no name until it has answered,
    as while Ray has no room for it."""

    payload: "RayPayload"

    def __init__(self, ray: Any, actor: Any) -> None:
        super().__init__()
        self._ray, self.actor = ray, actor
        self.ping()
        self.awaiting = "start"

    def ping(self) -> bool:
        self.reference = self.actor.introduce.remote()
        return True

    def build(self, payload: "RayPayload") -> None:
        self.reference = self.actor.build.remote(payload.factory, payload.seen, "", [])

    def evaluate(self, tasks: Sequence[Task]) -> None:
        self.reference = self.actor.evaluate.remote(json.dumps([astuple(task) for task in tasks]))

    def receive(self) -> list[Message]:
        try:
            answer = json.loads(self._ray.get(self.reference))
        except self._ray.exceptions.RayTaskError as error:
            raise DiffcreditError(f"the worker {self.name} failed: {one_line(error)}") from error
        except self._ray.exceptions.RayError as error:
            return [WorkerFailure(self.name, "lost", f"the worker {self.name} was lost: {one_line(error)}")]
        evaluations = [evaluation_of(text) for text in answer.get("evaluations", ())]
        kind = answer["kind"]
        if kind == STARTED:
            self._introduced(answer["name"], answer["version"])
            return [Started()]
        if kind == READY:
            return [Ready(answer["at_once"])]
        if kind == EVALUATIONS:
            return list(evaluations)
        if kind == MACHINE_ERROR:
            return [*evaluations, WorkerFailure(self.name, answer["error"], answer["message"])]
        if kind == MISSING_FILES:
            files = self.payload.files(self._ray, self.name)
            self.reference = self.actor.build.remote(self.payload.factory, self.payload.seen, *files)
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
            raise UserError(
                f"the node {name.rpartition(':')[0]} has diffcredit {version}, this machine {ours}; install the same "
                "on all"
            )


class RayPayload:
    """The description from which the workers of one run build their evaluator.

    ``seen``: paths that show whether a node shares the driver's files.
    """

    def __init__(self, factory: str, files: WorkerFiles | None, seen: list[str]) -> None:
        self.factory, self.seen = factory, seen
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
            self._packed = pack(self._files, lambda piece: pieces.append(ray.put(piece))).text, pieces
        return self._packed


@runtime_checkable
class HasWorkerFiles(Protocol):
    """An object, such as a study, whose methods are factories and which knows the files that their evaluators read."""

    def worker_files(self) -> WorkerFiles: ...


@contextmanager
def ray_payload(factory: EvaluatorFactory) -> Generator[RayPayload]:
    """Return what workers build from ``factory``, whose owner may name files (:class:`HasWorkerFiles`)."""
    text, owner = factory_text(factory), owner_of(factory)
    if not isinstance(owner, HasWorkerFiles):
        yield RayPayload(text, None, [])
        return
    files = owner.worker_files()
    with marker_file(files.folder) as marker:
        yield RayPayload(text, files, [str(marker), *map(str, files.roots)])
