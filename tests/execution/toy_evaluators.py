"""Evaluators for tests, which worker processes import by name; and what tests ask about workers."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diffcredit.errors import UserError
from diffcredit.execution import Evaluator, Task
from diffcredit.execution.tasks import done_evaluation, utc_now
from diffcredit.ledger import Evaluation, Value


def done(task: Task, value: float, **numerics: Any) -> Evaluation:
    return done_evaluation(task, [Value("value", value)], utc_now(), numerics, {})


@dataclass(frozen=True)
class Toy(Evaluator):
    """Is its own factory; the subclasses say what an evaluation is."""

    def __call__(self) -> "Toy":
        return self

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        for task in tasks:
            yield self.one(task)

    def one(self, task: Task) -> Evaluation:
        return done(task, int(task.coalition, 2) / 7 + task.replicate)


@dataclass(frozen=True)
class Shifted(Toy):
    def one(self, task: Task) -> Evaluation:
        return done(task, int(task.coalition, 2) / 7 + task.replicate + 1)


@dataclass(frozen=True)
class Slow(Toy):
    """Leaves its process id in a folder and never ends; if stubborn, not even when politely asked."""

    folder: Path
    stubborn: bool = False

    def one(self, task: Task) -> Evaluation:
        if self.stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (self.folder / str(os.getpid())).touch()
        time.sleep(600)
        return done(task, 0.0)


HANGS, STOPS, NO_MEMORY, NO_DISK, KILLED, EXITS, QUICK, QUICK_TOO = (
    Task(coalition, 0, "estimate") for coalition in ("0001", "0010", "0011", "0100", "0110", "0111", "1000", "1001")
)
"""What :class:`Troubled` meets there."""


class OutOfMemoryError(RuntimeError):
    """Is called like torch's, and stands for it where torch is not loaded."""


@dataclass(frozen=True)
class Troubled(Toy):
    """Gets into a trouble at each of some coalitions (see below) until it has ``times`` times; says so by files named
    after the coalition and its process."""

    folder: Path
    times: int

    def one(self, task: Task) -> Evaluation:
        if int(task.coalition, 2) in range(1, 8) and len(list(self.folder.glob(f"{task.coalition}-*"))) < self.times:
            (self.folder / f"{task.coalition}-{os.getpid()}").touch()
            match task.coalition:
                case "0001":
                    time.sleep(600)
                case "0010":
                    os.kill(os.getpid(), signal.SIGSTOP)
                case "0011":
                    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
                case "0100":
                    with Path("/dev/full").open("w") as file:
                        file.write("the images of this evaluation")
                case "0110":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "0111":
                    os._exit(3)
        return super().one(task)


@dataclass(frozen=True)
class CannotBuild(Toy):
    """A factory that raises, or takes its process with it."""

    way: str
    folder: Path

    def __call__(self) -> "Toy":
        (self.folder / str(os.getpid())).touch()
        if self.way == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.way == "mistake":
            raise UserError("retraining.steps: -1; must be at least 1")
        raise RuntimeError("no such checkpoint")


@dataclass(frozen=True)
class Threads(Toy):
    """Tells how many threads it was given, and sums whose last bits may depend on them."""

    eager: bool

    def __call__(self) -> "Toy":
        if self.eager:
            import torch  # noqa: F401
        return self

    def one(self, task: Task) -> Evaluation:
        loaded = "torch" in sys.modules
        import numpy as np
        import torch
        from threadpoolctl import threadpool_info

        # torch's own count, that of its matrix products, and those of every library that has its own
        counts = {torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())}
        counts |= {int(n) for n in re.findall(r"get_max_threads\(\) : (\d+)", torch.__config__.parallel_info())}
        total = torch.linspace(0, 1, 2_000_003).sin().sum().item() + np.ones((300, 300)).dot(np.ones(300))[0]
        return done(task, total, threads=sorted(counts), torch_loaded=loaded)


@dataclass(frozen=True)
class Strange(Toy):
    """Tells something of itself that the ledger could not keep."""

    def one(self, task: Task) -> Evaluation:
        return done(task, 0.0, device=object())


@dataclass(frozen=True)
class Meeting(Toy):
    """Leaves its process id in a folder, and evaluates nothing before so many are there."""

    folder: Path
    count: int

    def one(self, task: Task) -> Evaluation:
        (self.folder / str(os.getpid())).touch()
        while len(list(self.folder.iterdir())) < self.count:
            time.sleep(0.02)
        return super().one(task)


@dataclass(frozen=True)
class Devices(Meeting):
    """Tells which GPUs its process sees. Gets the interrupt that Ctrl-C sends to every process of a terminal."""

    def one(self, task: Task) -> Evaluation:
        os.kill(os.getpid(), signal.SIGINT)
        return replace(super().one(task), numerics={"gpus": os.environ.get("CUDA_VISIBLE_DEVICES")})


@dataclass(frozen=True)
class Together(Toy):
    """Takes several tasks at once, of which memory holds ``room``; leaves which those were in a folder, in a file for
    each time."""

    folder: Path
    at_once: int = 3
    room: int = 99

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        (self.folder / f"{time.monotonic_ns():020d}").write_text(" ".join(task.coalition for task in tasks))
        if len(tasks) > self.room:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        yield from super().evaluate(tasks)


@dataclass(frozen=True)
class Ahead(Together):
    """Begins with the next tasks before it answers the last of those it has."""

    def evaluate_pipelined(self, tasks: Sequence[Task], more: Callable[[], Sequence[Task]]) -> Iterator[Evaluation]:
        owed: list[Evaluation] = []
        while tasks:
            try:
                answers = list(self.evaluate(tasks))
            except OutOfMemoryError:
                yield from owed
                raise
            *ready, last = [*owed, *answers]
            yield from ready
            owed, tasks = [last], more()
        yield from owed


@dataclass(frozen=True)
class TroubledTogether(Troubled):
    at_once: int = 3


@dataclass(frozen=True)
class Wayward(Toy):
    """Answers the first of several tasks properly, and then has its own ways."""

    way: str
    at_once: int = 4

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        answers = [self.one(task) for task in tasks]
        yield answers[0]
        match self.way:
            case "raises":
                raise RuntimeError("the GPU is on fire")
            case "another":
                yield from [self.one(Task("00", 0, "truth")), *answers[2:]]
            case "too many":
                yield from [*answers[1:], answers[0]]


@dataclass(frozen=True)
class Closed(Toy):
    """Tells when it was left in the middle."""

    folder: Path
    at_once: int = 3

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        try:
            for task in tasks:
                (self.folder / task.coalition).touch()
                yield self.one(task)
        except GeneratorExit:
            (self.folder / "closed").touch()
            raise


def batches(folder: Path) -> list[list[str]]:
    """The coalitions that came together, time after time."""
    return [file.read_text().split() for file in sorted(folder.iterdir())]


def values(evaluations):
    """What evaluations found, in an order that does not depend on who was first."""
    return sorted(
        (item.coalition, item.replicate, item.purpose, item.status, tuple(value.value for value in item.values))
        for item in evaluations
    )


def pids(folder: Path) -> list[int]:
    """The processes that left their id in a folder, as ``id`` or ``something-id``."""
    return [int(file.name.rpartition("-")[2]) for file in folder.iterdir()]


def pid_of(worker: str) -> int:
    return int(worker.rpartition(":")[2])


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended but was not yet collected does not. A killed one that has a thread
    left cannot be collected yet."""
    try:
        ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return not ended or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except FileNotFoundError:
        return False
