"""A study whose processes are killed again and again comes out as if nothing had happened, bit for bit."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from diffcredit.execution.threads import limited_threads
from diffcredit.report.composing import write_results
from diffcredit.study.study import Study
from running_study import (
    BASE,
    EVALUATING,
    FITTING,
    PICTURES,
    RECOVERY,
    SAMPLING,
    kill_group,
    read_until,
    running,
    workers_of,
)
from tiny_study import recorded_values, rows, run_here, write_study

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes by way of /proc")

CHANGES = {
    "model.train": {"steps": 30, "batch_size": 8, "learning_rate": 1e-3, "ema": 0.9},
    "retraining": {"method": "sparsified", "recover_steps": 20, "steps": 3},
    "stop.evaluations": 22,
}


def here_to_the_end(file: Path) -> None:
    run_here(file)
    with limited_threads(1):
        write_results(Study.load(file))


def to_the_end(file: Path) -> None:
    with running(file) as process:
        told = process.communicate(timeout=500)[0]
        assert process.returncode == 0, told


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same study in one process that nobody kills."""
    file = write_study(tmp_path_factory.mktemp("undisturbed"), CHANGES)
    here_to_the_end(file)
    return file.parent


def check(folder: Path, undisturbed: Path) -> None:
    assert recorded_values(folder) == recorded_values(undisturbed)
    done = rows(folder, "SELECT coalition, replicate FROM evaluations WHERE status = 'done'")
    assert max(Counter(done).values()) == 1
    assert len(done) == 24
    assert rows(folder, "SELECT count(*) FROM evaluations WHERE status <> 'done'") == [(0,)]
    assert rows(folder, "PRAGMA integrity_check") == [("ok",)]
    table = "results/credits.csv"
    assert (folder / table).read_bytes() == (undisturbed / table).read_bytes()
    assert (folder / "results/report.html").stat().st_size > 10_000


def kill_at(file: Path, moments: list[tuple[str, int]], seed: int, workers: int = 2) -> None:
    """One life a moment: when a stage has told so many times of itself, and a little later, all processes die."""
    later = random.Random(seed)
    for stage, count in moments:
        with running(file, workers) as process:
            read_until(process, stage, count)
            time.sleep(later.uniform(0, 0.1))
            assert process.poll() is None or stage == PICTURES
            kill_group(process)


@pytest.mark.slow
def test_killed_ten_times(tmp_path, undisturbed):
    chance = random.Random(1)
    moments = [
        (BASE, chance.randint(1, 9)),
        (BASE, chance.randint(1, 9)),
        (RECOVERY, chance.randint(1, 9)),
        (RECOVERY, chance.randint(1, 9)),
        (SAMPLING, 1),
        (FITTING, 1),
        (EVALUATING, chance.randint(1, 5)),
        (EVALUATING, chance.randint(1, 5)),
        (EVALUATING, chance.randint(1, 5)),
        (PICTURES, 1),
    ]
    file = write_study(tmp_path, CHANGES)
    kill_at(file, moments, seed=1)
    to_the_end(file)
    check(tmp_path, undisturbed)


@pytest.mark.slow
def test_a_killed_worker_is_replaced(tmp_path, undisturbed):
    file = write_study(tmp_path, CHANGES)
    with running(file) as process:
        for _ in range(2):
            read_until(process, EVALUATING, 3)
            os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        assert process.wait(timeout=500) == 0, process.stdout.read()
    check(tmp_path, undisturbed)
