"""The Ray actor that evaluates tasks on a node, and the JSON texts that its methods receive and return.

Nothing is pickled: an evaluation is data, whoever sends it. A factory names code of this installation, which a worker
accepts from its driver alone.
"""

import json
import signal
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields, is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.execution.machine_errors import MachineError, machine_error
from diffcredit.execution.shipping import unpack
from diffcredit.execution.tasks import (
    Evaluator,
    EvaluatorFactory,
    Task,
    evaluate_all,
    failed_evaluation,
    utc_now,
    worker_name,
)
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.versions import package_versions
from diffcredit.ledger import Evaluation, Value
from diffcredit.util.consent import grant

STARTED, READY, MISSING_FILES, BUILD_ERROR = "started", "ready", "missing files", "build error"
EVALUATIONS, MACHINE_ERROR = "evaluations", "machine error"


class EvaluationActor:
    """An evaluator in a process of a node, with ``threads`` threads."""

    def __init__(self, threads: int) -> None:
        # Ctrl-C reaches every process of the terminal; the driver alone decides what it means
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._threads = ExitStack()  # never closed
        self._threads.enter_context(limited_threads(threads))
        self._evaluator: Evaluator | None = None
        self._metrics = _Metrics()

    def introduce(self) -> str:
        """Return this worker's name, and its version of diffcredit."""
        return _answer(STARTED, name=worker_name(), version=package_versions().get("diffcredit"))

    def build(self, factory: str, allowed: list[str], seen: list[str], manifest: str, pieces: Sequence[Any]) -> str:
        """Build the evaluator. ``allowed`` are the hashes of code that may run as the study's plug-ins. ``seen`` are
        paths that this node has if it shares the driver's files. If one is missing, the answer asks for the files, and
        the driver calls again with a ``manifest`` and references to ``pieces``."""
        import ray

        self._evaluator = None  # before the next one is built: both may not fit into memory
        if not manifest and not all(Path(path).exists() for path in seen):
            return _answer(MISSING_FILES)
        try:
            # fetched one after another: one piece is in memory at a time
            grant(allowed)
            places = unpack(manifest, (ray.get(piece) for piece in pieces)) if manifest else {}
            self._evaluator = factory_of(factory, places)()
            return _answer(READY, at_once=self._evaluator.at_once)
        except Exception as error:
            if not isinstance(error, UserError) and (found := machine_error(error)):
                return _answer(MACHINE_ERROR, message=str(found), error=found.kind)
            known = isinstance(error, DiffcreditError)
            message = str(error) if known else f"a worker could not build its evaluator:\n{traceback.format_exc()}"
            return _answer(BUILD_ERROR, message=message, user_error=isinstance(error, UserError))

    def evaluate(self, text: str) -> str:
        """Return the evaluations of all tasks, or those made before a machine error and the error."""
        assert self._evaluator is not None  # a driver sends no task before this worker is ready
        tasks, started, clock = [Task(*fields) for fields in json.loads(text)], utc_now(), time.perf_counter()
        answers: list[str] = []
        try:
            for task, evaluation in zip(tasks, evaluate_all(self._evaluator, tasks), strict=True):
                answer, status = _text(task, evaluation, started)
                answers.append(answer)
                self._metrics.count(status, time.perf_counter() - clock)
                clock = time.perf_counter()
        except MachineError as error:
            return _answer(MACHINE_ERROR, message=str(error), error=error.kind, evaluations=answers)
        return _answer(EVALUATIONS, evaluations=answers)


class _Metrics:
    """The metrics that Ray exports to Prometheus: ``ray_diffcredit_workers``, and by ``status``
    ``ray_diffcredit_evaluations_total``, ``ray_diffcredit_busy_seconds_total`` and the histogram
    ``ray_diffcredit_evaluation_seconds``."""

    def __init__(self) -> None:
        from ray.util.metrics import Counter, Gauge, Histogram

        Gauge("diffcredit_workers", "Workers that are there.").set(1.0)
        self._evaluations = Counter("diffcredit_evaluations", "Evaluations so far.", ("status",))
        # Ray estimates a histogram's sum from the middles of the buckets; this one is exact
        self._busy = Counter("diffcredit_busy_seconds", "Seconds of all evaluations so far.", ("status",))
        bounds = [0.1, 1, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200]
        self._seconds = Histogram("diffcredit_evaluation_seconds", "Seconds of an evaluation.", bounds, ("status",))

    def count(self, status: str, seconds: float) -> None:
        seconds = max(seconds, 1e-9)  # Ray refuses zero
        self._evaluations.inc(1.0, {"status": status})
        self._busy.inc(seconds, {"status": status})
        self._seconds.observe(seconds, {"status": status})


def _answer(kind: str, **fields: Any) -> str:
    return json.dumps({"kind": kind, **fields})


def _text(task: Task, evaluation: Evaluation, started: str) -> tuple[str, str]:
    """Return the evaluation as JSON, and its status; a failed one where an evaluator's answer is not JSON."""
    try:
        return evaluation_text(evaluation), evaluation.status
    except (TypeError, ValueError):
        failed = failed_evaluation(task, traceback.format_exc(), worker_name(), started)
        return evaluation_text(failed), failed.status


def evaluation_text(evaluation: Evaluation) -> str:
    """Write an evaluation; floats have all their digits, so that they are read back bit for bit."""
    return json.dumps(asdict(evaluation))


def evaluation_of(text: str) -> Evaluation:
    content = json.loads(text)
    values = tuple(Value(**value) for value in content.pop("values"))
    return Evaluation(values=values, **content)


def factory_text(factory: EvaluatorFactory) -> str:
    """Write a factory. It may consist of a module's functions and classes, methods of objects that define
    ``__reduce__`` (a study: its settings), dataclasses and JSON values; TypeError for anything else."""
    return json.dumps(_encoded(factory))


def factory_of(text: str, places: Mapping[str, str]) -> EvaluatorFactory:
    """Read a factory. ``places`` maps paths to where they are on this machine; paths below them follow."""
    return _decoded(_relocated(json.loads(text), sorted(places.items(), key=lambda place: -len(place[0]))))


def owner_of(factory: EvaluatorFactory) -> Any:
    """Return the object whose method the factory is; None if it is no method."""
    if isinstance(factory, partial):
        return owner_of(factory.func)
    return factory.__self__ if isinstance(factory, MethodType) else None


def _encoded(value: Any) -> Any:
    from pydantic import BaseModel  # only drivers need it

    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_encoded(item) for item in value]
    if kind is tuple:
        return {"tuple": [_encoded(item) for item in value]}
    if kind is dict:
        return {"mapping": [[_encoded(key), _encoded(item)] for key, item in value.items()]}
    if isinstance(value, Path):
        return {"path": str(value.absolute())}  # a worker has another working directory
    if kind is partial:
        return {"partial": _encoded(value.func), "arguments": _encoded([list(value.args), value.keywords])}
    if kind is MethodType:
        return {"method": value.__name__, "of": _encoded(value.__self__)}
    if (kind is FunctionType or isinstance(value, type)) and "<" not in value.__qualname__:
        return {"named": _name(value)}
    if isinstance(value, BaseModel):
        return {"settings": value.model_dump(mode="json", by_alias=True), "type": _name(kind)}
    if isinstance(vars(kind).get("__reduce__"), FunctionType):
        made_by, arguments = value.__reduce__()
        return {"made by": _name(made_by), "arguments": _encoded(list(arguments))}
    if is_dataclass(value):
        content = {field.name: getattr(value, field.name) for field in fields(value)}
        return {"type": _name(kind), "fields": _encoded(content)}
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be sent to workers on other machines")


def _name(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


def _decoded(value: Any) -> Any:
    match value:
        case list():
            return [_decoded(item) for item in value]
        case {"tuple": items}:
            return tuple(_decoded(items))
        case {"mapping": items}:
            return {_decoded(key): _decoded(item) for key, item in items}
        case {"path": path}:
            return Path(path)
        case {"partial": function, "arguments": arguments}:
            positional, keywords = _decoded(arguments)
            return partial(_decoded(function), *positional, **keywords)
        case {"made by": name, "arguments": arguments}:
            return _named(name)(*_decoded(arguments))
        case {"method": name, "of": owner}:
            return getattr(_decoded(owner), name)
        case {"named": name}:
            return _named(name)
        case {"settings": settings, "type": name}:
            return _named(name).model_validate(settings)
        case {"type": name, "fields": content}:
            return _named(name)(**_decoded(content))
    return value


def _named(name: str) -> Any:
    module, _, path = name.partition(":")
    found = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _relocated(value: Any, places: list[tuple[str, str]]) -> Any:
    """Replace paths by ``places``: (there, here), the longest first."""
    if isinstance(value, list):
        return [_relocated(item, places) for item in value]
    if isinstance(value, dict):
        return {key: _relocated(item, places) for key, item in value.items()}
    if isinstance(value, str):
        for there, here in places:
            if value == there or value.startswith(f"{there}/"):
                return here + value[len(there) :]
    return value
