"""Workers in processes of this machine. What the pool decides is tested in test_pool.py."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest
from toy_evaluators import (
    EXITS,
    HANGS,
    KILLED,
    NO_MEMORY,
    QUICK,
    QUICK_TOO,
    STOPS,
    CannotBuild,
    Devices,
    Shifted,
    Slow,
    Threads,
    Toy,
    Troubled,
    TroubledTogether,
    alive,
    pids,
    values,
)

from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
from diffcredit.execution import InProcess, LocalWorkers, Task, local
from diffcredit.execution.assignments import WorkerFailure
from diffcredit.execution.backend import Ready
from diffcredit.execution.local import LocalBackend, ProcessWorker, spread, visible_devices
from diffcredit.execution.threads import environment
from running_study import wait_until

TASKS = [Task(f"{i:02b}", replicate, "estimate") for i in range(4) for replicate in range(2)]


@pytest.fixture(autouse=True)
def nobody_is_left():
    yield
    assert multiprocessing.active_children() == []


def test_same_results_as_in_process_from_no_more_processes_than_tasks_each_on_its_device(tmp_path):
    """Though workers get the terminal's interrupts."""
    executor = LocalWorkers(workers=8, retries=0, devices=("GPU-8932", "1"))
    there = list(executor.run(Devices(tmp_path, 2), TASKS[:2]))
    assert values(there) == values(InProcess().run(Toy(), TASKS[:2]))
    assert {item.numerics["gpus"] for item in there} == {"GPU-8932", "1"}
    assert len(pids(tmp_path)) == 2


@pytest.mark.slow  # tests/study/test_study.py compares the bits of workers among the quick tests
def test_threads_and_numbers_are_those_of_in_process():
    """Also where torch is loaded only by the evaluation."""
    (here,) = InProcess(threads=2).run(Threads(eager=False), TASKS[:1])
    (there,) = LocalWorkers(workers=1, threads=2).run(Threads(eager=False), TASKS[:1])
    assert there.numerics == {"threads": [2], "torch_loaded": False}
    assert here.numerics["threads"] == [2]
    assert there.values == here.values


def test_workers_that_die_stop_or_run_out_of_something_are_replaced_and_their_tasks_repeated(
    tmp_path, impatient, told, caplog
):
    tasks = [QUICK, KILLED, EXITS, STOPS, NO_MEMORY]
    results = list(LocalWorkers(workers=1, retries=1).run(Troubled(tmp_path, times=1), tasks))
    events = told()
    assert values(results) == values(InProcess().run(Toy(), tasks))
    assert not any(alive(pid) for pid in pids(tmp_path))  # also the one that was stopped can never come back
    assert events["worker started"] == events["worker ready"] == 5
    assert (events["task given"], events["task repeated"], events["task answered"]) == (9, 4, 5)
    assert events["worker dismissed"] == 1
    lost = {
        record.fields["coalition"]: (record.getMessage(), record.fields["worker"], record.fields["reason"])
        for record in caplog.records
        if "reason" in record.fields and record.getMessage() != "task repeated"
    }
    for task, kind, reason in (
        (KILLED, "worker lost", "was killed by SIGKILL"),
        (EXITS, "worker lost", "ended with exit code 3"),
        (STOPS, "worker timed out", "took longer than 1 s and was killed"),
        (NO_MEMORY, "worker out of memory", "Tried to allocate 20.00 GiB."),
    ):
        told_kind, worker, told_reason = lost[task.coalition]
        assert told_kind == kind
        assert reason in told_reason
        assert (tmp_path / f"{task.coalition}-{worker.rpartition(':')[2]}").exists()


def test_a_factory_that_raises_or_kills_its_process_ends_the_run(tmp_path):
    executor = LocalWorkers(workers=1, retries=0)
    with pytest.raises(DiffcreditError, match=r"(?s)could not build.*Traceback.*no such checkpoint") as raised:
        list(executor.run(CannotBuild("raises", tmp_path), TASKS))
    assert not isinstance(raised.value, UserError)
    with pytest.raises(UserError, match=r"^retraining.steps: -1; must be at least 1$"):
        list(executor.run(CannotBuild("mistake", tmp_path), TASKS))
    with pytest.raises(DiffcreditError, match=r"before they are ready.*SIGKILL"):
        list(executor.run(CannotBuild("dies", tmp_path), TASKS))
    assert len(pids(tmp_path)) == 3
    with pytest.raises((AttributeError, TypeError), match="pickle"):  # and leaves no worker
        list(executor.run(lambda: Toy(), TASKS))


def test_an_interrupt_ends_even_workers_that_ignore_a_polite_request(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "TERMINATE_WITHIN", 0.2)

    def tasks():
        yield from TASKS[:2]
        while len(pids(tmp_path)) < 2:
            yield None
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(LocalWorkers(workers=3).run(Slow(tmp_path, stubborn=True), tasks()))
    assert [alive(pid) for pid in pids(tmp_path)] == [False, False]


DRIVER = """
import sys
from pathlib import Path
from toy_evaluators import Slow
from diffcredit.execution import LocalWorkers, Task

if __name__ == "__main__":
    tasks = [Task("00", 0, "pilot"), Task("01", 0, "pilot")]
    list(LocalWorkers(workers=2).run(Slow(Path(sys.argv[1])), tasks))
"""


@pytest.fixture
def driver(tmp_path):
    """A process whose two workers are at work, in a group of its own as in a terminal."""
    started, script = tmp_path / "started", tmp_path / "driver.py"
    started.mkdir()
    script.write_text(DRIVER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, script, started]
    process = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(pids(started)) == 2)
    yield process, pids(started)
    for pid in (process.pid, *pids(started)):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def test_a_killed_driver_leaves_no_workers(driver):
    process, workers = driver
    assert all(alive(pid) for pid in workers)
    process.kill()
    process.wait()
    wait_until(lambda: not any(alive(pid) for pid in workers))


@pytest.mark.slow  # tests/cli/test_interrupt.py interrupts a command among the quick tests
def test_an_interrupt_from_the_terminal_ends_driver_and_workers(driver):
    process, workers = driver
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.count("KeyboardInterrupt") == 1
    assert not any(alive(pid) for pid in workers)


def test_refuses_senseless_numbers():
    for wrong in ({"workers": 0}, {"workers": 1, "threads": 0}, {"workers": 1, "retries": -1}):
        with pytest.raises(UserError, match="must be at least"):
            LocalWorkers(**wrong)


def test_a_session_keeps_its_processes_and_a_run_that_is_closed_ends_its_own(tmp_path):
    with LocalWorkers(workers=1).session() as pool:
        first, second = list(pool.run(Toy(), TASKS)), list(pool.run(Shifted(), TASKS))
        assert {item.worker for item in second} <= {item.worker for item in first}
        assert values(second) == values(InProcess().run(Shifted(), TASKS)) != values(first)
        run = pool.run(TroubledTogether(tmp_path, times=1), [QUICK, HANGS, QUICK_TOO])
        assert next(run).coalition == QUICK.coalition  # in the middle of a batch
        run.close()
        assert multiprocessing.active_children() == []
        assert values(pool.run(Toy(), TASKS)) == values(first)


def test_answers_that_are_found_only_when_a_worker_is_killed_count_and_a_dead_one_says_how_it_died():
    worker = ProcessWorker(1, None)
    worker.build(Toy())
    backend = LocalBackend(1, [None])
    assert backend.wait([worker], 60) == [worker]
    assert worker.receive() == [Ready(1)]
    worker.evaluate(TASKS[:2])
    assert backend.wait([worker], 60) == [worker]
    os.kill(worker.process.pid, signal.SIGSTOP)
    assert values(worker.kill()) in [values(InProcess().run(Toy(), TASKS[:count])) for count in (1, 2)]
    worker = ProcessWorker(1, None)
    worker.build(Toy())
    assert worker.alive
    os.kill(worker.process.pid, signal.SIGKILL)
    wait_until(lambda: not worker.alive)
    (failure,) = worker.receive()
    assert (failure.kind, failure.reason) == ("lost", f"the worker {worker.name} was killed by SIGKILL")
    worker.kill()


def test_workers_are_as_many_as_places_and_the_last_one_stays():
    backend = LocalBackend(1, ["GPU-1", "GPU-2", "GPU-1"])
    workers = backend.recruit([])
    assert [worker.device for worker in workers] == ["GPU-1", "GPU-2", "GPU-1"]
    assert [worker.device for worker in backend.recruit(workers[1:])] == ["GPU-1"]
    failure = WorkerFailure("w", "out of memory", "")
    for worker, left in ((workers[0], "1 instead of 2 workers on the GPU GPU-1"), (workers[1], "0 instead of 1")):
        with pytest.warns(DiffcreditWarning, match=f"^out of memory: {left}"):
            assert backend.retire(worker, failure)
    assert not backend.retire(workers[2], failure)
    assert Counter(worker.device for worker in backend.recruit([])) == {"GPU-1": 1}
    with pytest.warns(DiffcreditWarning, match="1 instead of 2 workers here"):
        LocalBackend(1, [None, None]).retire(LocalBackend(1, [None]).recruit([])[0], failure)


@pytest.mark.parametrize(
    ("count", "variable", "names"),
    [
        (0, None, ()),
        (3, None, ("0", "1", "2")),
        (2, "3,1", ("3", "1")),
        (2, " GPU-8932f937 , GPU-0d3c ", ("GPU-8932f937", "GPU-0d3c")),
        (2, "0,1,-1,2", ("0", "1")),  # CUDA stops at the first that is no device
        (0, "", ()),
        (1, "MIG-5a1e,MIG-77f0", ("MIG-5a1e", "MIG-77f0")),  # of which CUDA counts one
    ],
)
def test_devices_are_named_as_they_were_given(count, variable, names):
    assert visible_devices(count, variable) == names


def test_workers_are_spread_over_devices_in_turn():
    assert spread(1, ("a", "b")) == ["a"]
    assert spread(5, ("a", "b")) == ["a", "b", "a", "b", "a"]
    assert spread(3, ()) == [None] * 3


@pytest.mark.parametrize("before", [None, "4,5"])
@pytest.mark.parametrize("device", ["GPU-1", None])
def test_within_a_device_is_visible_and_afterwards_what_was(monkeypatch, before, device):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    with environment({"CUDA_VISIBLE_DEVICES": device} if device else {}):
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == (device or before)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before
