"""Faults inside an evaluation: which task meets which, at its first try only."""

import errno
import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from diffcredit.execution import Task
from diffcredit.execution.tasks import utc_now
from diffcredit.ledger import Evaluation

PLAN, NOTES, FIRED = "plan.json", "begun.jsonl", "fired"

KILLED = "worker killed"
ANSWERED = "worker killed as it answers"
PAUSED = "worker paused beyond its lease"
HUNG = "worker hangs"
MEMORY = "out of GPU memory"
DISK = "disk full, of a worker"
NAN = "NaN loss"
AFTER = "error after a success"
HALF = "upload killed in the middle"
UNCOMMITTED = "upload killed before its record"

PLANTED = (KILLED, ANSWERED, PAUSED, HUNG, MEMORY, DISK, NAN, AFTER, HALF, UNCOMMITTED)
FAILING = {NAN: "the training loss became", AFTER: "an error after the success"}
"""Those that are recorded as failed evaluations, and what their errors say."""

FULL = Path("/dev/full")  # the kernel refuses every write to it, as a full disk does


@dataclass(frozen=True)
class Notes:
    """What workers tell the campaign, and it them, by files in ``folder``."""

    folder: Path

    def plan(self, faults: dict[str, str]) -> None:
        """Which fault each task meets, by :func:`key`."""
        temporary = self.folder / f".{PLAN}"
        temporary.write_text(json.dumps(faults), encoding="utf-8")
        temporary.replace(self.folder / PLAN)

    def begin(self, task: Task) -> str | None:
        """Notes that this process begins a task; the fault that it meets, if it is the first to."""
        line = json.dumps({"task": key(task), "process": os.getpid(), "time": utc_now()}) + "\n"
        file = os.open(self.folder / NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, line.encode())
        os.close(file)
        plan = self.folder / PLAN
        fault = json.loads(plan.read_text(encoding="utf-8")).get(key(task)) if plan.exists() else None
        return fault if fault is not None and self._first(key(task)) else None

    def begun(self) -> list[dict[str, Any]]:
        file = self.folder / NOTES
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def fired(self) -> set[str]:
        """The tasks that have met their fault."""
        return {file.name.replace("-", " ") for file in (self.folder / FIRED).glob("*")}

    def _first(self, name: str) -> bool:
        (self.folder / FIRED).mkdir(exist_ok=True)
        try:
            (self.folder / FIRED / name.replace(" ", "-")).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def key(task: Task | Evaluation) -> str:
    return f"{task.coalition} {task.replicate}"


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError  # nobody survives that


def die_soon(seconds: float) -> None:
    """While the process goes on."""
    threading.Timer(seconds, die).start()


def pause(seconds: float) -> None:
    """Stops the whole process, as a laptop's lid does; a child wakes it."""
    subprocess.Popen(["sh", "-c", f"sleep {seconds}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


def hang() -> NoReturn:
    while True:
        time.sleep(3600)


def run_out_of_memory() -> NoReturn:
    import torch

    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def run_out_of_disk() -> None:
    with FULL.open("wb", buffering=0) as file:
        file.write(b"images")
    raise AssertionError(f"{FULL} took what was written: {errno.ENOSPC} was expected")


def cut_upload(moment: str) -> None:
    """From now on an upload to a folder leaves half a file, or the files without their record, and kills this
    process."""
    from fsspec.implementations.local import LocalFileSystem

    def half(files: LocalFileSystem, source: str, target: str, **options: Any) -> None:
        content = Path(source).read_bytes()
        Path(target).write_bytes(content[: len(content) // 2])
        die()

    if moment == HALF:
        LocalFileSystem.put_file = half
    else:
        LocalFileSystem.pipe_file = lambda *arguments, **options: die()
