"""What runs inside a worker of a Ray cluster: an actor, which is told and answers JSON texts.

It is sent a factory, builds its evaluator and then evaluates tasks, as many at once as it is sent together. Another
factory takes the place of the first.
"""

import json
import signal
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.execution.shipping import Waybill, settle
from diffcredit.execution.tasks import Evaluator, Task, at_once, evaluate_all, failed_evaluation, utc_now, worker_name
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.travel import evaluation_text, factory_of, task_of
from diffcredit.execution.troubles import MachineTrouble, told
from diffcredit.execution.versions import package_versions
from diffcredit.ledger import Evaluation

READY, LACKS_FILES, USERS_MISTAKE, FAILURE = "ready", "lacks files", "user's mistake", "failure"
EVALUATIONS, IN_TROUBLE = "evaluations", "in trouble"


class RayWorker:
    """An evaluator in a process of a node, with ``threads`` threads."""

    def __init__(self, threads: int) -> None:
        # Ctrl-C reaches every process of the terminal; the driver alone decides what it means
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._threads = ExitStack()  # open for life
        self._threads.enter_context(limited_threads(threads))
        self._evaluator: Evaluator | None = None
        self._metrics = _Metrics()

    def introduce(self) -> str:
        """Who this is: its name, and the version of diffcredit."""
        return json.dumps({"name": worker_name(), "version": package_versions().get("diffcredit")})

    def build(self, factory: str, seen: list[str], waybill: str, pieces: Sequence[Any]) -> str:
        """``seen``: paths that this node has if it shares the driver's files; if it lacks one, it asks for them, and
        is called again with a ``waybill`` and references to ``pieces``."""
        self._evaluator = None  # before the next one is built: both may not fit into memory
        if not waybill and not all(Path(path).exists() for path in seen):
            return _answer(LACKS_FILES)
        try:
            places = settle(Waybill.of(waybill), _fetched(pieces)) if waybill else {}
            self._evaluator = factory_of(factory, places)()
            return _answer(READY, at_once=at_once(self._evaluator))
        except UserError as error:
            return _answer(USERS_MISTAKE, message=str(error))
        except Exception as error:
            if trouble := told(error):
                return _answer(IN_TROUBLE, message=str(trouble), trouble=trouble.trouble, evaluations=[])
            if isinstance(error, DiffcreditError):
                return _answer(FAILURE, message=str(error))
            return _answer(FAILURE, message=f"a worker could not build its evaluator:\n{traceback.format_exc()}")

    def evaluate(self, texts: list[str]) -> str:
        """The evaluations of all tasks, or those so far and that the machine is in trouble."""
        assert self._evaluator is not None  # a driver gives no task before this worker is ready
        tasks, started, clock = [task_of(text) for text in texts], utc_now(), time.perf_counter()
        answers: list[str] = []
        try:
            for task, evaluation in zip(tasks, evaluate_all(self._evaluator, tasks), strict=True):
                answer, status = _text(task, evaluation, started)
                answers.append(answer)
                self._metrics.count(status, time.perf_counter() - clock)
                clock = time.perf_counter()
        except MachineTrouble as trouble:
            return _answer(IN_TROUBLE, message=str(trouble), trouble=trouble.trouble, evaluations=answers)
        return _answer(EVALUATIONS, evaluations=answers)


class _Metrics:
    """What Ray tells Prometheus of this worker: ``ray_diffcredit_workers``, and by ``status``
    ``ray_diffcredit_evaluations_total``, ``ray_diffcredit_busy_seconds_total`` and the histogram
    ``ray_diffcredit_evaluation_seconds``."""

    def __init__(self) -> None:
        from ray.util.metrics import Counter, Gauge, Histogram

        Gauge("diffcredit_workers", "Workers that are there.").set(1.0)
        self._evaluations = Counter("diffcredit_evaluations", "Evaluations so far.", ("status",))
        # a histogram's sum is Ray's guess from the middles of the buckets; this one is exact
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
    """The evaluation as it travels, and its status; a failed one where what an evaluator told of itself is no JSON."""
    try:
        return evaluation_text(evaluation), evaluation.status
    except (TypeError, ValueError):
        failed = failed_evaluation(task, traceback.format_exc(), worker_name(), started)
        return evaluation_text(failed), failed.status


def _fetched(pieces: Sequence[Any]) -> Any:
    """The bytes that references stand for, one piece in memory at a time."""
    import ray

    return (ray.get(piece) for piece in pieces)
