"""A campaign: a study that is brought to its end in phases, each with its faults, and what each of them cost.

A phase raises the number of evaluations at which the study stops, lets faults happen while it runs, and then does what
a supervisor would: the same command again, until nothing is missing.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.faults import planted
from benchmarks.faults.acts import ACTS, acts_of
from benchmarks.faults.drive import LOG
from benchmarks.faults.drivers import Driver, wait_until
from benchmarks.faults.places import Place
from benchmarks.faults.planted import Notes, key
from benchmarks.faults.study import FaultyStudy, write_study

AT_ONCE = 5  # planted faults of one phase
BESIDE = 4  # evaluations of such a phase that meet none
OF_AN_ACT = 8  # evaluations of a phase with another fault
MOST_RUNS = 8  # that a phase may need
TOLD = {"claim taken over", "claim lost", "non-determinism", "node left"}  # beside all warnings


@dataclass
class Tally:
    """Of one kind of fault: how often it happened, how it was noticed, and how many evaluations were begun in vain."""

    injected: int = 0
    noticed: Counter[str] = field(default_factory=Counter)
    repeated: int = 0


@dataclass(frozen=True)
class Phase:
    """``faults`` to plant, or the name of one act."""

    faults: tuple[str, ...] = ()
    act: str | None = None

    @property
    def evaluations(self) -> int:
        return len(self.faults) + BESIDE if self.act is None else OF_AN_ACT


def phases_of(place: Place, planted_each: int, acts_each: int, chance: random.Random) -> list[Phase]:
    """So many faults of every kind, in a random order."""
    inside = [kind for kind in planted.PLANTED for _ in range(planted_each)]
    chance.shuffle(inside)
    groups = [tuple(inside[start : start + AT_ONCE]) for start in range(0, len(inside), AT_ONCE)]
    phases = [Phase(group) for group in groups]
    phases += [Phase(act=name) for name in acts_of(place) for _ in range(acts_each)]
    chance.shuffle(phases)
    return phases


class Campaign:
    """The study in ``folder`` with its ledger at ``place``, and what has happened to it."""

    def __init__(self, folder: Path, place: Place, seed: int) -> None:
        self.folder, self.place = folder, place
        self.tallies: dict[str, Tally] = {}
        self.runs = 0
        self.left_behind = 0  # processes of drivers that had ended
        self.codes: Counter[int] = Counter()
        self.planted: dict[str, str] = {}  # the kind of fault of each task that was to meet one
        self.evaluations = 0  # at which the study stops
        self._chance = random.Random(seed)
        self._notes = Notes(folder)
        self._begun_before = 0
        self._drivers: list[Driver] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.study.prepare()

    @property
    def study(self) -> FaultyStudy:
        return FaultyStudy(write_study(self.folder, max(1, self.evaluations), self.place.ledger), 0.0)

    def run(self, phase: Phase) -> None:
        """The phase, to its end."""
        before, heard = len(self._notes.begun()), len(self._log())
        self._begun_before = before
        done_before = self._done()
        self.evaluations += phase.evaluations
        mixed = [task for task in self._missing() if len(set(task.split()[0])) > 1]  # an endpoint trains nothing
        plants = dict(zip(self._chance.sample(mixed, len(phase.faults)), phase.faults, strict=True))
        self.planted |= plants
        self._notes.plan(self.planted)
        with self._tidy():
            if phase.act is not None:
                ACTS[phase.act](self)
        self._finish()
        notes = self._notes.begun()[before:]
        begun = Counter(note["task"] for note in notes)
        met = {note["task"]: note["process"] for note in reversed(notes)}  # who began it first
        events = self._log()[heard:]
        in_vain = sum(begun.values()) - (self._done() - done_before)
        for task, kind in plants.items():
            if task not in self._notes.fired():
                raise AssertionError(f"{kind} was to happen at {task}, and did not")
            self._tally(kind, [each for each in events if _tells_of(each, task, met[task])], begun[task] - 1)
            in_vain -= begun[task] - 1
        if phase.act is not None:
            self._tally(phase.act, events, in_vain)
        elif in_vain:
            self._tally("no fault of their own", [], in_vain, injected=0)

    def start(self, **environment: str) -> Driver:
        driver = Driver(self.folder / "study.yaml", self.place.address, environment)
        self._drivers.append(driver)
        self.runs += 1
        return driver

    def wait_begun(self, driver: Driver, tasks: int = 1) -> None:
        """Until so many tasks of this phase were begun, and a random moment longer; the driver is at work then."""
        wait_until(
            lambda: len(self._notes.begun()) >= self._begun_before + tasks or not driver.running,
            f"{tasks} tasks begun",
        )
        time.sleep(self._chance.uniform(0, 0.4))
        if not driver.running:
            raise AssertionError("the run had ended before the fault")

    def last_begun(self) -> int:
        """The process that has begun a task last."""
        return self._notes.begun()[-1]["process"]

    def _finish(self) -> None:
        for _ in range(MOST_RUNS):
            if not self._missing():
                return
            with self._tidy():
                self.start().wait()
        raise AssertionError(f"{len(self._missing())} evaluations are missing after {MOST_RUNS} runs")

    @contextmanager
    def _tidy(self) -> Generator[None]:
        """Nothing of the drivers started within is left afterwards."""
        try:
            yield
        finally:
            for driver in self._drivers:
                if not driver.running:
                    self.codes[driver.wait()] += 1
                self.left_behind += driver.end()
            self._drivers.clear()

    def _missing(self) -> list[str]:
        return missing(self.study)

    def _done(self) -> int:
        return len(self.study.evaluations("done"))

    def _log(self) -> list[dict[str, Any]]:
        file = self.folder / LOG
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def _tally(self, kind: str, events: list[Mapping[str, Any]], repeated: int, injected: int = 1) -> None:
        tally = self.tallies.setdefault(kind, Tally())
        tally.injected += injected
        tally.repeated += repeated
        tally.noticed.update({word for each in events if (word := _word(each))})


def missing(study: FaultyStudy) -> list[str]:
    """The tasks that are wanted and not done, in the order of the schedule."""
    done = {key(each) for each in study.evaluations("done")}
    return [task for task in wanted(study) if task not in done]


def wanted(study: FaultyStudy) -> list[str]:
    """All tasks of a study that stops at a number of evaluations."""
    schedule = study.schedule()
    return [
        key(task) for task in (*schedule.endpoints, *islice(schedule.coalitions(), schedule.rule.max_evaluations()))
    ]


def _tells_of(event: Mapping[str, Any], task: str, process: int) -> bool:
    """Whether an event is of this task, or of the loss of the process that met its fault."""
    if "replicate" in event:
        return f"{event['coalition']} {event['replicate']}" == task
    return event["event"].startswith("worker") and event["worker"].endswith(f":{process}")


def _word(event: Mapping[str, Any]) -> str | None:
    """How a fault was noticed, if this event tells of it."""
    if event["event"] == "evaluation recorded":
        return "recorded as failed" if event["status"] == "failed" else None
    if event["event"] == "failed":
        return "the run ended with an error"
    return event["event"] if event["level"] != "info" or event["event"] in TOLD else None
