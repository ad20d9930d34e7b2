"""An evaluation of the campaign: trains, samples, measures and keeps, and meets the fault that is planned for it."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.faults import planted
from benchmarks.faults.model import RATE, images_of
from benchmarks.faults.planted import Notes
from diffcredit.execution import Evaluator, Task
from diffcredit.execution.keeping import Keeper
from diffcredit.execution.tasks import utc_now, worker_name
from diffcredit.execution.versions import package_versions
from diffcredit.features.extractors import Extractors
from diffcredit.ledger import Evaluation, Value
from diffcredit.properties.colourfulness import Colourfulness
from diffcredit.properties.measuring import Observation
from diffcredit.util.store import Store

PROPERTIES = ("colourfulness", "benchmarks.faults.evaluator:brightness")
PAUSE = 4.5  # seconds that a paused worker sleeps: longer than a lease, shorter than its time limit
KEPT = Path("kept") / "fine_tune"


def brightness(images: NDArray[np.uint8]) -> float:
    return float(images.mean())


@dataclass(frozen=True)
class FaultyEvaluator(Evaluator):
    """Is its own factory. ``seconds``: that each evaluation waits, as for a GPU; ``url``: where images are kept."""

    folder: Path
    url: str
    seconds: float

    def __call__(self) -> "FaultyEvaluator":
        return self

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        for task in tasks:
            fault = Notes(self.folder).begin(task)
            yield self._evaluation(task, fault)
            if fault == planted.AFTER:
                raise RuntimeError("an error after the success")

    def _evaluation(self, task: Task, fault: str | None) -> Evaluation:
        started, clock = utc_now(), time.perf_counter()
        time.sleep(self.seconds / 2)
        match fault:
            case planted.KILLED:
                planted.die()
            case planted.PAUSED:
                planted.pause(PAUSE)
            case planted.HUNG:
                planted.hang()
            case planted.MEMORY:
                planted.run_out_of_memory()
            case planted.DISK:
                planted.run_out_of_disk()
            case planted.HALF | planted.UNCOMMITTED:
                planted.cut_upload(fault)
        images = images_of(task.coalition, task.replicate, 1e6 * RATE if fault == planted.NAN else RATE)
        time.sleep(self.seconds / 2)
        values = (Colourfulness().measure(images), brightness(images))
        keeper = Keeper(self.folder / KEPT, "images", Store(self.url))
        keeper.keep(task, Observation(Extractors(), images))
        if fault == planted.ANSWERED:
            planted.die_soon(0.002)
        return Evaluation(
            coalition=task.coalition,
            replicate=task.replicate,
            purpose=task.purpose,
            status="done",
            values=tuple(Value(name, value) for name, value in zip(PROPERTIES, values, strict=True)),
            error=None,
            numerics={"device": "cpu"},
            seconds={"training": time.perf_counter() - clock},
            worker=worker_name(),
            started=started,
            finished=utc_now(),
            versions=package_versions(),
        )
