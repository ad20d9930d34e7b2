"""A study whose evaluations are made up: everything of a run but the models.

The schedule, the driver, the ledger and the credits are those of ``diffcredit run``. The workers are simulated: each
evaluation takes a random time by a clock of their own, which nobody waits for, and its values are those of a game with
known credits.
"""

import heapq
import random
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from diffcredit.coalitions import decode
from diffcredit.execution import EvaluatorFactory, Executor, Task
from diffcredit.execution.tasks import ASK_AGAIN
from diffcredit.execution.versions import package_versions
from diffcredit.ledger import Evaluation, Ledger, PropertyRecord, RecipeRecord, Value
from diffcredit.study.config import read_config
from diffcredit.study.study import Study
from diffcredit.util.seeds import derive_seed

CONTRIBUTORS = 20
PROPERTIES = ("aesthetic", "colourfulness", "memorisation")
NOISE = 1.0  # standard deviation; one contributor's credit is about as large
MINUTES = 5.0  # of an evaluation, by the workers' clock, on average
BEGINNING = datetime(2025, 1, 1, tzinfo=UTC)


def game(prop: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(n,) and (n, n): what each contributor adds, and what each pair adds (upper triangle)."""
    chance = np.random.default_rng(derive_seed("scale", prop))
    pairs = np.triu(chance.normal(0, 0.2, (CONTRIBUTORS, CONTRIBUTORS)), 1)
    return chance.normal(0, 1, CONTRIBUTORS), pairs


def true_credits(prop: str) -> NDArray[np.float64]:
    """(n,): the game's Shapley values; a pair shares what it adds."""
    alone, pairs = game(prop)
    return alone + (pairs + pairs.T).sum(axis=1) / 2


@dataclass
class SimulatedWorkers(Executor):
    """An executor of ``workers`` that make evaluations up; ``seconds`` of CPU are its own, the simulation's."""

    workers: int
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._games = {prop: game(prop) for prop in PROPERTIES}
        self._versions = package_versions()

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        """As tasks come, in the order in which the workers' clock says that they are done."""
        source, clock, open_ended = iter(tasks), 0.0, True
        busy: list[tuple[float, int, Evaluation]] = []  # by the time when it is done
        number = 0
        while True:
            while open_ended and len(busy) < self.workers:
                try:
                    task = next(source)
                except StopIteration:
                    open_ended = False
                    break
                if task is None:
                    if not busy:
                        time.sleep(ASK_AGAIN)  # for another driver, which is no simulation
                    break
                began = time.process_time()
                evaluation = self._evaluation(task, number, clock)
                heapq.heappush(busy, (_seconds(evaluation.finished), number, evaluation))
                number += 1
                self.seconds += time.process_time() - began
            if busy:
                clock, _, evaluation = heapq.heappop(busy)
                yield evaluation
            elif not open_ended:
                return

    def _evaluation(self, task: Task, number: int, start: float) -> Evaluation:
        chance = random.Random(f"{task.coalition} {task.replicate}")
        members = decode(task.coalition).astype(np.float64)
        took = 60 * MINUTES * chance.lognormvariate(0, 0.3)
        values = tuple(
            Value(prop, float(members @ alone + members @ pairs @ members) + NOISE * chance.gauss(0, 1), 0.01, 1024)
            for prop, (alone, pairs) in self._games.items()
        )
        return Evaluation(
            coalition=task.coalition,
            replicate=task.replicate,
            purpose=task.purpose,
            status="done",
            values=values,
            error=None,
            numerics={"device": "cuda", "name": "simulated", "dtype": "float32", "threads": 1, "fleet": 1},
            seconds={"training": round(0.8 * took, 3), "sampling": round(0.2 * took, 3), "measuring": 0.0},
            worker=f"simulated:{number % self.workers}",
            started=(BEGINNING + timedelta(seconds=start)).isoformat(timespec="milliseconds"),
            finished=(BEGINNING + timedelta(seconds=start + took)).isoformat(timespec="milliseconds"),
            versions=self._versions,
        )


def _seconds(stamp: str) -> float:
    return (datetime.fromisoformat(stamp) - BEGINNING).total_seconds()


@dataclass
class Clocks:
    """Seconds of CPU by what a driver did, and the seconds that recording took."""

    claim: float = 0.0
    record: float = 0.0
    hear: float = 0.0

    @contextmanager
    def of(self, what: str) -> Generator[None]:
        began = time.process_time()
        try:
            yield
        finally:
            setattr(self, what, getattr(self, what) + time.process_time() - began)


class TimedLedger(Ledger):
    """The ledger, with clocks on what a driver calls for every evaluation."""

    clocks: Clocks

    def claim(self, *arguments: Any) -> Any:
        with self.clocks.of("claim"):
            return super().claim(*arguments)

    def record(self, *arguments: Any) -> bool:
        with self.clocks.of("record"):
            return super().record(*arguments)

    def evaluations_since(self, *arguments: Any) -> tuple[list[Evaluation], int]:
        with self.clocks.of("hear"):
            return super().evaluations_since(*arguments)


@dataclass(eq=False)
class SimulatedStudy(Study):
    """A study that has nothing to prepare."""

    path: Path
    clocks: Clocks = field(default_factory=Clocks)

    def __post_init__(self) -> None:
        super().__init__(read_config(self.path), self.path)

    def prepare(self) -> None:
        with self.ledger() as ledger:
            ledger.register_study(self.name, {"contributors": [f"c{index:02d}" for index in range(CONTRIBUTORS)]})
            ledger.register_recipe(self.name, RecipeRecord(self.recipe.name, {}))
            for prop in PROPERTIES:
                ledger.register_property(self.name, PropertyRecord(prop, {"name": prop}, higher_is_better=True))

    def ledger(self, *, create: bool = True) -> TimedLedger:
        place = self.config.ledger or self.folder / "ledger.db"
        ledger = TimedLedger.open(place, create=create, readings=self._readings)
        ledger.clocks = self.clocks
        return ledger


def write_study(folder: Path, evaluations: int, ledger: str | None = None) -> Path:
    """``study.yaml`` in ``folder``. It stops at so many evaluations; correlation and hours are looked at all the same,
    and out of reach."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "name": "scale",
        "results": "results",
        "contributions": {"source": "openmoji", "resolution": 16},
        "model": {"preset": "tiny", "train": {"steps": 1}},
        "retraining": {"method": "fine_tune", "steps": 1},
        "sampling": {"steps": 1, "images": 1},
        "properties": list(PROPERTIES),
        "stop": {"any": [{"evaluations": evaluations}, {"correlation": 0.999999}, {"hours": 1e6}]},
    } | ({"ledger": ledger} if ledger else {})
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return file
