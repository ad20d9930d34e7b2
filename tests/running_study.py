"""`diffcredit run` in processes of its own, watched step by step."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tiny_study import ENVIRONMENT

# `diffcredit run` that saves itself at every step and tells of every step, so that kills can be placed.
DRIVER = """
import diffcredit.cli.console
import diffcredit.diffusion.training
from diffcredit.cli import main

diffcredit.cli.console.PLAIN_SECONDS = 0.0
diffcredit.diffusion.checkpoints.CHECKPOINT_SECONDS = 0.0
main()
"""

BASE, RECOVERY, SAMPLING, FITTING, EVALUATING, PICTURES = (
    "training the base model",
    "recovering the pruned model",
    "sampling the base model",
    "fitting properties",
    "evaluating coalitions",
    "retraining for the pictures",
)


@contextmanager
def running(file: Path, workers: int = 2) -> Iterator[subprocess.Popen[str]]:
    """The study's run, all its processes in one group, which is gone afterwards."""
    command = [sys.executable, "-u", "-c", DRIVER, "run", str(file), "--workers", str(workers)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    watchdog = threading.Timer(600, kill_group, [process])  # a run that hangs fails its test
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        kill_group(process)


def kill_group(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def read_until(process: subprocess.Popen[str], stage: str, count: int) -> None:
    """Reads what the run tells until it has told ``count`` times of ``stage``."""
    told = []
    for line in process.stdout:
        told.append(line)
        count -= line.startswith(stage)
        if count == 0:
            return
    pytest.fail(f"the run ended before {stage!r}:\n{''.join(told[-30:])}")


def workers_of(driver: int) -> list[int]:
    """The processes that work for the driver, those that ended and were not collected left out."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            works = b"spawn_main" in (folder / "cmdline").read_bytes()
        except OSError:  # it ended while we looked
            continue
        if works and int(parent) == driver and state != "Z":
            found.append(int(folder.name))
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    """Fails when the condition has not come true within a time that only a hanging process needs."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
