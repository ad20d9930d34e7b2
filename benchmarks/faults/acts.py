"""Faults of drivers, clocks, nodes and databases: each is brought about while a study is running.

An act starts the drivers that it needs and leaves none of them running. What it leaves undone is the next run's.
"""

import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, Signals
from typing import Protocol

from benchmarks.faults.drive import LEASE
from benchmarks.faults.drivers import Driver
from benchmarks.faults.places import AWAY, Place, restart, server_away

JUMP = 7200  # seconds
CLOCK = Path(__file__).with_name("clock.c")
COMPILER = shutil.which("cc")


class Stage(Protocol):
    """What an act has at hand: ``start`` starts a driver, ``wait_begun`` waits until it has begun tasks and a random
    moment longer, ``last_begun`` names the process that began the latest."""

    folder: Path
    place: Place

    def start(self, **environment: str) -> Driver: ...

    def wait_begun(self, driver: Driver, tasks: int = 1) -> None: ...

    def last_begun(self) -> int: ...


def kill_driver(stage: Stage) -> None:
    """Its workers are left to themselves."""
    driver = stage.start()
    stage.wait_begun(driver)
    driver.send(SIGKILL)
    driver.wait()


def kill_all(stage: Stage) -> None:
    """As a machine that loses its power."""
    driver = stage.start()
    stage.wait_begun(driver)
    driver.send_all(SIGKILL)
    driver.wait()


def pause_driver(stage: Stage) -> None:
    """The driver alone sleeps; its workers answer, and nobody listens. It wakes when another has done its tasks."""
    _pause(stage, lambda driver, number: driver.send(number))


def pause_all(stage: Stage) -> None:
    """As a laptop that sleeps."""
    _pause(stage, lambda driver, number: driver.send_all(number))


def _pause(stage: Stage, send: Callable[[Driver, Signals], None]) -> None:
    sleeper = stage.start()
    stage.wait_begun(sleeper, 2)
    send(sleeper, SIGSTOP)
    stage.start().wait()
    send(sleeper, SIGCONT)
    sleeper.wait()


def two_drivers(stage: Stage) -> None:
    """From the same moment on."""
    for driver in [stage.start(), stage.start()]:
        driver.wait()


def stale_claims(stage: Stage) -> None:
    """Two drivers wait for the claims of a third, which sleeps and never wakes."""
    sleeper = stage.start()
    stage.wait_begun(sleeper, 2)
    sleeper.send_all(SIGSTOP)
    for driver in [stage.start(), stage.start()]:
        driver.wait()
    sleeper.send_all(SIGKILL)
    sleeper.wait()


def clock_ahead(stage: Stage) -> None:
    _jump(stage, JUMP)


def clock_back(stage: Stage) -> None:
    _jump(stage, -JUMP)


def _jump(stage: Stage, seconds: int) -> None:
    """The clock of one driver and its workers is put by so many seconds while another works by the right one."""
    offset, library = stage.folder / "clock", stage.folder / "clock.so"
    offset.write_text("0\n")
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", library, CLOCK, "-ldl"], check=True)
    jumping = stage.start(LD_PRELOAD=str(library), FAULTS_CLOCK=str(offset))
    other = stage.start()
    stage.wait_begun(jumping)
    offset.write_text(f"{seconds}\n")
    jumping.wait()
    other.wait()


def lock_ledger(stage: Stage) -> None:
    """Another program writes to the file for longer than a lease."""
    driver = stage.start()
    stage.wait_begun(driver)
    with closing(sqlite3.connect(stage.place.ledger, timeout=30, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        time.sleep(LEASE + AWAY)
        connection.execute("ROLLBACK")
    driver.wait()


def fill_disk(stage: Stage) -> None:
    """The ledger's."""
    driver = stage.start()
    stage.wait_begun(driver)
    with stage.place.full_disk():
        driver.wait()


def restart_server(stage: Stage) -> None:
    driver = stage.start()
    stage.wait_begun(driver)
    assert stage.place.server is not None
    restart(stage.place.server)
    driver.wait()


def server_down_at_start(stage: Stage) -> None:
    assert stage.place.server is not None
    with server_away(stage.place.server):
        stage.start().wait()


def kill_node(stage: Stage) -> None:
    driver = stage.start()
    stage.wait_begun(driver, 2)
    assert stage.place.cluster is not None
    stage.place.cluster.kill_node(stage.last_begun())
    driver.wait()


ACTS: dict[str, Callable[[Stage], None]] = {
    "driver killed": kill_driver,
    "driver and workers killed": kill_all,
    "driver paused beyond its lease": pause_driver,
    "driver and workers paused beyond the lease": pause_all,
    "two drivers at once": two_drivers,
    "two drivers at one stale claim": stale_claims,
    "clock two hours ahead": clock_ahead,
    "clock two hours back": clock_back,
    "database locked": lock_ledger,
    "disk full, of the ledger": fill_disk,
    "database restarted": restart_server,
    "database down as a run starts": server_down_at_start,
    "node killed": kill_node,
}


def acts_of(place: Place) -> list[str]:
    """Those that there are at a place, on this machine."""
    there = {
        "clock two hours ahead": COMPILER is not None,
        "clock two hours back": COMPILER is not None,
        "database locked": place.server is None,
        "disk full, of the ledger": place.disk is not None,
        "database restarted": place.server is not None,
        "database down as a run starts": place.server is not None,
        "node killed": place.cluster is not None,
    }
    return [name for name in ACTS if there.get(name, True)]
