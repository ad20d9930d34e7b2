"""Drivers as processes, which a campaign starts, kills, pauses and awaits."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import SIGKILL, Signals

PATIENCE = 300.0  # seconds after which whatever is awaited will never be
LINGER = 5.0  # seconds in which workers must have followed their driver
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    "RAY_USAGE_STATS_ENABLED": "0",
}


class Driver:
    """A run of the study and its local workers: one session of processes, which is gone at the end of ``with``."""

    def __init__(self, file: Path, address: str | None, environment: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "benchmarks.faults.drive", str(file), *([address] if address else [])]
        with (file.parent / "told.txt").open("ab") as told:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=ENVIRONMENT | dict(environment or {}),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> int:
        """Its exit code."""
        return self._process.wait(PATIENCE)

    def send(self, number: Signals) -> None:
        self._process.send_signal(number)

    def send_all(self, number: Signals) -> None:
        """It and its local workers."""
        os.killpg(self.pid, number)

    def end(self) -> int:
        """Makes sure that nothing of it is left; how many processes were, though it was not running any more."""
        if self.running:
            self.send_all(SIGKILL)
            self._process.wait(PATIENCE)
        deadline = time.monotonic() + LINGER
        while (left := _session(self.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            os.kill(pid, SIGKILL)
        return len(left)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"never came true: {what}")
        time.sleep(0.02)


def _session(leader: int) -> list[int]:
    """The processes of a session that are alive."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it ended while we looked
            continue
        if int(session) == leader and state != "Z":
            found.append(int(folder.name))
    return found
