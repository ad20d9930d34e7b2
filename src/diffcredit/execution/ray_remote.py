"""A worker of a Ray cluster as its driver sees it, and what it builds its evaluator from."""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.execution.assignments import Loss
from diffcredit.execution.ray_connection import one_line
from diffcredit.execution.ray_worker import EVALUATIONS, IN_TROUBLE, LACKS_FILES, READY, USERS_MISTAKE
from diffcredit.execution.shipping import WorkerFiles, marked, pack
from diffcredit.execution.tasks import EvaluatorFactory, Task
from diffcredit.execution.travel import evaluation_of, factory_text, owner_of, task_text
from diffcredit.execution.versions import package_versions
from diffcredit.ledger import Evaluation
from diffcredit.util.events import event


class WorkerLost(Exception):
    """A worker is gone or of no more use; its ``evaluations`` are those it has answered with that."""

    def __init__(self, loss: Loss, evaluations: Sequence[Evaluation] = ()) -> None:
        super().__init__(loss.reason)
        self.loss, self.evaluations = loss, evaluations


class RemoteWorker:
    """An actor and the answer that it owes, for which ``reference`` stands, since it was ``asked``, by the clock of
    who asks. One without a name has not answered yet, as where Ray has yet to find room for it."""

    def __init__(self, actor: Any, now: float) -> None:
        self.actor = actor
        self.name = ""
        self.ready = False  # whether its evaluator is built
        self.at_once = 1  # as many tasks its evaluator takes at best
        self.owes: Literal["name", "evaluator", "evaluation"] | None  # what its next answer tells of; None: nothing
        self._load: Load | None = None
        self.introduce(now)

    def introduce(self, now: float) -> None:
        """Asks whether it is there."""
        self.owes = "name"
        self._ask(self.actor.introduce.remote(), now)

    def build(self, load: "Load", now: float) -> None:
        """Has it build its evaluator, unless it has that one."""
        if self._load is not load:
            self._load, self.ready, self.owes = load, False, "evaluator"
            self._ask(self.actor.build.remote(load.factory, load.seen, "", []), now)

    def give(self, tasks: Sequence[Task], now: float) -> None:
        self.owes = "evaluation"
        self._ask(self.actor.evaluate.remote([task_text(task) for task in tasks]), now)

    def receive(self, ray: Any, now: float) -> list[Evaluation]:
        """The evaluations of the tasks that it was given; none in an answer that comes before."""
        try:
            answer = json.loads(ray.get(self.reference))
        except ray.exceptions.RayTaskError as error:
            raise DiffcreditError(f"the worker {self.name} failed: {one_line(error)}") from error
        except ray.exceptions.RayError as error:
            reason = f"the worker {self.name} was lost: {one_line(error)}"
            raise WorkerLost(Loss(self.name, "lost", reason)) from None
        seconds, self.asked = now - self.asked, now
        if self.owes == "name" or self._load is None:
            self.owes = None
            self._greet(**answer)
            return []
        kind = answer["kind"]
        if kind == EVALUATIONS:
            self.owes = None
            return [evaluation_of(text) for text in answer["evaluations"]]
        if kind == READY:
            self.ready, self.at_once, self.owes = True, answer["at_once"], None
            event("worker ready", worker=self.name, seconds=seconds)
        elif kind == LACKS_FILES:
            waybill, pieces = self._load.parcel(ray, self.name)
            self._ask(self.actor.build.remote(self._load.factory, self._load.seen, waybill, pieces), now)
        elif kind == IN_TROUBLE:
            loss = Loss(self.name, answer["trouble"], answer["message"])
            raise WorkerLost(loss, [evaluation_of(text) for text in answer["evaluations"]])
        else:
            raise (UserError if kind == USERS_MISTAKE else DiffcreditError)(answer["message"])
        return []

    def _ask(self, reference: Any, now: float) -> None:
        self.reference, self.asked = reference, now

    def _greet(self, name: str, version: str | None) -> None:
        if not self.name:
            event("worker started", worker=name)
        self.name = name
        ours = package_versions().get("diffcredit")
        if version != ours:
            raise UserError(
                f"the node {name.rpartition(':')[0]} has diffcredit {version}, this machine {ours}; install the same "
                "on all"
            )


class Load:
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
def load_of(factory: EvaluatorFactory) -> Generator[Load]:
    """``factory``, whose owner may say which files its evaluators read (``worker_files()``)."""
    text = factory_text(factory)
    find = getattr(owner_of(factory), "worker_files", None)
    if find is None:
        yield Load(text, None, [])
        return
    files: WorkerFiles = find()
    with marked(files.folder) as mark:
        yield Load(text, files, [str(mark), *map(str, files.roots)])
