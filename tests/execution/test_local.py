import logging
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_evaluators import (
    CannotBuild,
    Crowded,
    Devices,
    Interrupted,
    Mortal,
    NeverBuilt,
    Occupied,
    Parting,
    Poisoned,
    Raising,
    Shifted,
    Slow,
    Threads,
    Together,
    Toy,
    Troubled,
    TroubledTogether,
    batches,
)

from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
from diffcredit.execution import InProcess, LocalWorkers, Task, local
from diffcredit.execution.time_limits import TimeLimits

TASKS = [Task(f"{i:02b}", replicate, "estimate") for i in range(4) for replicate in range(2)]
TEN = [Task(f"{i:04b}", 0, "estimate") for i in range(10)]


def values(evaluations):
    return sorted(
        (
            item.coalition,
            item.replicate,
            item.purpose,
            item.status,
            tuple(value.value for value in item.values),
        )
        for item in evaluations
    )


def wait_until(condition: Callable[[], bool]) -> None:
    """Fails when the condition has not come true within a time that only a hanging process needs."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def pids(folder: Path) -> list[int]:
    return [int(file.name) for file in folder.iterdir()]


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended but was not yet collected does not. A killed one that has a thread
    left cannot be collected yet."""
    try:
        ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return not ended or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except FileNotFoundError:
        return False


def test_busy_workers_are_served_while_there_is_no_task():
    """The second task comes only once the first has been evaluated; until then there is none to be had."""
    seen, asked = [], []

    def tasks():
        yield None
        yield TASKS[0]
        while not seen:
            asked.append(True)
            yield None
        yield TASKS[1]

    for item in LocalWorkers(workers=2).run(Toy(), tasks()):
        seen.append(item)
    assert values(seen) == values(InProcess().run(Toy(), TASKS[:2]))
    assert asked
    assert multiprocessing.active_children() == []


def test_same_results_as_in_process_from_other_processes():
    here = list(InProcess().run(Toy(), TASKS))
    there = list(LocalWorkers(workers=2).run(Toy(), TASKS))
    assert values(there) == values(here)
    assert len({item.worker for item in there} - {here[0].worker}) == 2
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("eager", [True, False])
def test_threads_and_numbers_are_those_of_in_process(eager):
    (here,) = InProcess(threads=2).run(Threads(eager), TASKS[:1])
    (there,) = LocalWorkers(workers=1, threads=2).run(Threads(eager), TASKS[:1])
    assert there.numerics == {"threads": [2], "torch_loaded": eager}
    assert here.numerics["threads"] == [2]
    assert there.values == here.values


def test_tasks_are_taken_only_when_a_worker_is_free():
    taken, received = 0, 0

    def tasks():
        nonlocal taken
        for index in range(12):
            taken += 1
            assert taken - received <= 2
            yield Task(f"{index:04b}", 0, "estimate")

    for _ in LocalWorkers(workers=2).run(Toy(), tasks()):
        received += 1
    assert (taken, received) == (12, 12)


def test_no_more_workers_than_tasks_and_none_for_none(tmp_path):
    assert list(LocalWorkers(workers=2).run(CannotBuild("raises", tmp_path), [])) == []
    assert len({item.worker for item in LocalWorkers(workers=8).run(Toy(), TASKS[:1])}) == 1


def test_a_killed_workers_task_is_repeated(tmp_path):
    results = list(LocalWorkers(workers=2, retries=2).run(Mortal(tmp_path, times=2), TASKS[::2]))
    assert values(results) == values(InProcess().run(Toy(), TASKS[::2]))
    assert len(pids(tmp_path)) == 2


def test_a_task_that_kills_every_worker_fails_alone(tmp_path):
    results = list(LocalWorkers(workers=1, retries=1).run(Mortal(tmp_path, times=99), TASKS[::2]))
    (failed,) = [item for item in results if item.status == "failed"]
    assert failed.coalition == "11"
    assert "SIGKILL" in failed.error
    assert "given up at try 2" in failed.error
    assert failed.worker.endswith(f":{max(tmp_path.iterdir(), key=lambda f: f.stat().st_mtime_ns).name}")
    assert values(item for item in results if item is not failed) == values(InProcess().run(Toy(), TASKS[0:6:2]))


def test_what_the_evaluator_raises_is_a_failed_evaluation():
    results = list(LocalWorkers(workers=1).run(Raising(), TASKS[::2]))
    assert [item.status for item in results] == ["done", "failed", "failed", "failed"]
    assert "the GPU is on fire" in results[3].error
    assert len({item.worker for item in results if item.status == "failed"}) == 1


def test_a_factory_that_raises_ends_the_run(tmp_path):
    with pytest.raises(DiffcreditError, match=r"(?s)could not build.*Traceback.*no such checkpoint") as raised:
        list(LocalWorkers(workers=1).run(CannotBuild("raises", tmp_path), TASKS))
    assert not isinstance(raised.value, UserError)
    with pytest.raises(UserError, match=r"^retraining.steps: -1; must be at least 1$"):
        list(LocalWorkers(workers=1).run(CannotBuild("mistake", tmp_path), TASKS))
    assert len(pids(tmp_path)) == 2
    assert multiprocessing.active_children() == []


def test_a_factory_that_kills_its_process_ends_the_run(tmp_path):
    with pytest.raises(DiffcreditError, match=r"before they are ready.*SIGKILL"):
        list(LocalWorkers(workers=1, retries=1).run(CannotBuild("dies", tmp_path), TASKS))
    assert len(pids(tmp_path)) == 2


def test_a_factory_that_cannot_travel_leaves_no_worker():
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        list(LocalWorkers(workers=1).run(lambda: Toy(), TASKS))
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("stubborn", [False, True])
def test_an_interrupt_ends_the_workers(tmp_path, monkeypatch, stubborn):
    monkeypatch.setattr(local, "TERMINATE_WITHIN", 0.2)

    def tasks():
        yield from TASKS[:2]
        while len(pids(tmp_path)) < 2:
            yield None
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(LocalWorkers(workers=3).run(Slow(tmp_path, stubborn), tasks()))
    assert [alive(pid) for pid in pids(tmp_path)] == [False, False]
    assert multiprocessing.active_children() == []


def test_closing_the_run_ends_its_workers():
    run = LocalWorkers(workers=2).run(Toy(), TASKS)
    next(run)
    assert len(multiprocessing.active_children()) == 2
    run.close()
    assert multiprocessing.active_children() == []


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
    started = tmp_path / "started"
    started.mkdir()
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, script, started],
        env=environment,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
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


def test_an_interrupt_does_not_touch_a_worker():
    (item,) = LocalWorkers(workers=1, retries=0).run(Interrupted(), TASKS[:1])
    assert item.status == "done"


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
    with pytest.raises(UserError, match="timeout: 0; must be more than 0 seconds"):
        LocalWorkers(1, timeout=0)


def test_a_crew_keeps_its_processes_from_run_to_run_and_builds_another_evaluator():
    with LocalWorkers(workers=2).session() as crew:
        first = list(crew.run(Toy(), TASKS))
        second = list(crew.run(Shifted(), TASKS))
        assert {item.worker for item in second} <= {item.worker for item in first}
        assert values(second) == values(InProcess().run(Shifted(), TASKS)) != values(first)
    assert multiprocessing.active_children() == []


def test_a_run_that_is_left_early_ends_its_own_workers_and_the_crew_goes_on():
    with LocalWorkers(workers=2).session() as crew:
        run = crew.run(Toy(), TASKS)
        next(run)
        run.close()
        assert values(crew.run(Toy(), TASKS)) == values(InProcess().run(Toy(), TASKS))
    assert multiprocessing.active_children() == []


QUICK, HANGS, STOPS, NO_MEMORY, NO_DISK, QUICK_TOO = (
    Task(coalition, 0, "estimate") for coalition in ("1000", "0001", "0010", "0011", "0100", "0101")
)


def troubled(folder: Path, coalition: str = "") -> list[int]:
    return [int(file.name.rpartition("-")[2]) for file in folder.glob(f"{coalition}*-*")]


def kinds(caplog) -> Counter[str]:
    return Counter(record.getMessage() for record in caplog.records)


def test_workers_that_stop_or_run_out_of_something_are_replaced_and_their_tasks_repeated(tmp_path, impatient, caplog):
    caplog.set_level(logging.INFO, "diffcredit")
    tasks = [QUICK, STOPS, NO_MEMORY, NO_DISK, QUICK_TOO]
    results = list(LocalWorkers(workers=1, retries=1).run(Troubled(tmp_path, times=1), tasks))
    told = kinds(caplog)
    assert values(results) == values(InProcess().run(Toy(), tasks))
    assert not any(alive(pid) for pid in troubled(tmp_path))  # also the one that was stopped can never come back
    assert told["worker started"] == told["worker ready"] == 4
    assert (told["worker timed out"], told["worker out of memory"], told["worker out of disk"]) == (1, 1, 1)
    assert (told["task given"], told["task repeated"], told["task answered"]) == (8, 3, 5)
    assert told["worker dismissed"] == 1
    (lost,) = [record.fields for record in caplog.records if record.getMessage() == "worker out of memory"]
    assert (lost["coalition"], lost["replicate"], lost["purpose"]) == ("0011", 0, "estimate")
    assert lost["worker"].endswith(f":{troubled(tmp_path, '0011')[0]}")
    assert "Tried to allocate" in lost["reason"]


def test_a_task_in_trouble_again_and_again_fails_alone_with_the_last_reason(tmp_path, impatient):
    tasks = [QUICK, HANGS, NO_MEMORY, QUICK_TOO]
    results = {item.coalition: item for item in LocalWorkers(1, retries=0).run(Troubled(tmp_path, times=9), tasks)}
    assert [results[task.coalition].status for task in tasks] == ["done", "failed", "failed", "done"]
    hung, memory = results["0001"], results["0011"]
    assert re.fullmatch(r"given up at try 1: the worker \S+ took longer than 2 s and was killed", hung.error)
    assert memory.error.splitlines()[-1].endswith("CUDA out of memory. Tried to allocate 20.00 GiB.")
    for item in (hung, memory):
        assert int(item.worker.rpartition(":")[2]) in troubled(tmp_path, item.coalition)


def test_a_factory_that_hangs_ends_the_run():
    with pytest.raises(DiffcreditError, match=r"before they are ready: .* took longer than 0.2 s"):
        list(LocalWorkers(workers=1, retries=0, timeout=0.2).run(NeverBuilt(), TASKS))
    assert multiprocessing.active_children() == []


def test_an_answer_at_the_last_moment_counts_once(monkeypatch):
    """The driver finds the worker late before it finds its answer, which is there when the worker is killed."""

    answered = []

    def unseen(backend, workers, seconds):
        (worker,) = workers
        if worker.ready:
            assert worker.connection.poll(60)
            answered.append(worker.name)
            return []
        answered.clear()
        return waited(backend, [worker], seconds)

    waited = local.LocalBackend.wait
    monkeypatch.setattr(local.LocalBackend, "wait", unseen)
    monkeypatch.setattr(TimeLimits, "limit", lambda watch, kind: 0.0 if answered else 60.0)
    results = list(LocalWorkers(workers=1, retries=0).run(Toy(), TASKS[2:4]))
    assert values(results) == values(InProcess().run(Toy(), TASKS[2:4]))
    assert len({item.worker for item in results}) == 2


def test_a_worker_that_answers_and_then_dies_costs_no_task_a_try(tmp_path, caplog):
    caplog.set_level(logging.INFO, "diffcredit")
    folder, gate = tmp_path / "folder", tmp_path / "gate"
    folder.mkdir()

    def tasks():
        yield TASKS[0]
        while not results:
            yield None
        gate.touch()
        wait_until(lambda: not alive(pids(folder)[0]))
        yield TASKS[1]

    results = []
    for item in LocalWorkers(workers=1, retries=0).run(Parting(folder, gate), tasks()):
        results.append(item)
    assert values(results) == values(InProcess().run(Toy(), TASKS[:2]))
    assert kinds(caplog)["worker lost"] == 1
    assert kinds(caplog)["task repeated"] == 0


def test_workers_that_share_too_little_memory_become_fewer(tmp_path):
    with LocalWorkers(workers=2, retries=2).session() as crew:
        with pytest.warns(DiffcreditWarning, match=r"out of memory: 1 instead of 2 workers here") as warned:
            results = list(crew.run(Troubled(tmp_path, times=2), [NO_MEMORY, QUICK]))
        assert len(multiprocessing.active_children()) == 1
    assert len(warned) == 1
    assert values(results) == values(InProcess().run(Toy(), [NO_MEMORY, QUICK]))
    assert len(set(troubled(tmp_path, "0011"))) == 2


def test_memory_for_one_evaluator_makes_one_worker(tmp_path):
    with pytest.warns(DiffcreditWarning, match=r"1 instead of 2 workers on the GPU GPU-1"):
        results = list(LocalWorkers(2, retries=0, devices=("GPU-1",)).run(Crowded(tmp_path), TASKS))
    assert values(results) == values(InProcess().run(Toy(), TASKS))
    assert {item.worker.rpartition(":")[2] for item in results} == {str((tmp_path / "first").readlink())}


def test_a_gpu_that_serves_nobody_fails_no_task(tmp_path):
    """As when somebody else's program fills it."""
    tasks = [Task(f"{number:04b}", 0, "estimate") for number in range(1, 6)]
    executor = LocalWorkers(2, retries=2, devices=("GPU-1", "GPU-2"))
    with pytest.warns(DiffcreditWarning, match=r"^out of memory: 0 instead of 1 workers on the GPU GPU-2"):
        results = list(executor.run(Occupied("GPU-2", tmp_path), tasks))
    assert values(results) == values(InProcess().run(Toy(), tasks))
    assert len({item.worker for item in results}) == 1


@pytest.mark.slow
def test_the_last_worker_stays(tmp_path):
    (failed,) = LocalWorkers(1, retries=1).run(Troubled(tmp_path, times=9), [NO_MEMORY])
    assert failed.error.startswith("given up at try 2: ")


def test_each_worker_sees_its_device(tmp_path):
    results = list(LocalWorkers(workers=3, devices=("GPU-8932", "1")).run(Devices(tmp_path, 3), TASKS[:3]))
    assert Counter(item.numerics["gpus"] for item in results) == {"GPU-8932": 2, "1": 1}


def test_a_worker_is_given_several_at_once_when_all_before_were_answered(tmp_path):
    seen = []

    def tasks():
        for index, task in enumerate(TEN):
            assert len(seen) == index // 3 * 3
            yield task

    for item in LocalWorkers(workers=1).run(Together(tmp_path), tasks()):
        seen.append(item)
    assert values(seen) == values(InProcess().run(Toy(), TEN))
    assert [len(batch) for batch in batches(tmp_path)] == [3, 3, 3, 1]


def test_what_is_to_be_had_now_does_not_wait_for_more_and_two_workers_share_it(tmp_path):
    def tasks():
        yield TEN[0]
        while len(seen) < 1:
            yield None
        yield from TEN[1:]

    seen = []
    for item in LocalWorkers(workers=2).run(Together(tmp_path), tasks()):
        seen.append(item)
    assert values(seen) == values(InProcess().run(Toy(), TEN))
    first, *others = batches(tmp_path)
    assert first == ["0000"]
    assert sorted(coalition for batch in others for coalition in batch) == [task.coalition for task in TEN[1:]]
    assert max(map(len, others)) == 3


def test_a_task_that_kills_its_worker_among_others_fails_alone_after_its_own_tries(tmp_path, caplog):
    caplog.set_level(logging.INFO, "diffcredit")
    results = list(LocalWorkers(workers=1, retries=1).run(Poisoned(tmp_path), TEN[:4]))
    told = kinds(caplog)
    (failed,) = [item for item in results if item.status == "failed"]
    assert failed.coalition == "0001"
    assert re.fullmatch(r"given up at try 2: the worker \S+ ended with exit code 3", failed.error)
    others = [TEN[0], *TEN[2:4]]
    assert values(item for item in results if item is not failed) == values(InProcess().run(Toy(), others))
    assert batches(tmp_path) == [["0000", "0001", "0010"], ["0001"], ["0010"], ["0001"], ["0011"]]
    assert told["worker started"] == told["worker ready"] == 4
    assert told["worker lost"] == 2 + 1 + 1  # one for each task that was owed
    assert (told["task given"], told["task repeated"], told["task answered"]) == (7, 3, 3)


def test_a_crew_remembers_how_many_tasks_memory_holds(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    with LocalWorkers(workers=2, retries=0).session() as crew:
        with pytest.warns(DiffcreditWarning) as warned:
            first = list(crew.run(Together(before, 4, room=2), TEN[:5]))
        assert len(multiprocessing.active_children()) == 2  # no worker less
        second = list(crew.run(Together(after, 4, room=2), TEN[5:]))
    assert [str(each.message) for each in warned] == [
        "out of memory: workers are given 2 instead of 4 tasks at once from now on"
    ]
    assert values([*first, *second]) == values(InProcess().run(Toy(), TEN))
    assert sorted(len(batch) for batch in batches(before)) == [1, 1, 1, 1, 1, 4]
    assert sorted(len(batch) for batch in batches(after)) == [1, 2, 2]


def test_answers_of_a_batch_at_the_last_moment_count(tmp_path, monkeypatch, caplog):
    """The third of three hangs; the driver finds the worker late before it finds the first two answers."""
    caplog.set_level(logging.INFO, "diffcredit")

    def unseen(backend, workers, seconds):
        (worker,) = workers
        if worker.ready and not kinds(caplog)["worker timed out"]:
            wait_until(lambda: bool(troubled(tmp_path, "0001")))
            return []
        return waited(backend, [worker], seconds)

    def limit(watch, kind):
        return 0.0 if troubled(tmp_path, "0001") and not kinds(caplog)["worker timed out"] else 60.0

    waited = local.LocalBackend.wait
    monkeypatch.setattr(local.LocalBackend, "wait", unseen)
    monkeypatch.setattr(TimeLimits, "limit", limit)
    tasks = [QUICK, QUICK_TOO, HANGS]
    results = list(LocalWorkers(workers=1, retries=0).run(TroubledTogether(tmp_path, times=1), tasks))
    told = kinds(caplog)
    assert values(results) == values(InProcess().run(Toy(), tasks))
    assert (told["worker timed out"], told["task repeated"]) == (1, 1)
    assert (told["task given"], told["task answered"]) == (4, 3)


def test_the_time_of_a_batch_counts_when_its_last_is_answered(tmp_path, monkeypatch):
    noted = []
    monkeypatch.setattr(TimeLimits, "record", lambda watch, kind, seconds: noted.append((kind, len(seen))))
    seen = []
    endpoints_and_one = [Task(coalition, 0, "estimate") for coalition in ("00", "01", "11", "00")]
    for item in LocalWorkers(workers=1).run(Together(tmp_path), endpoints_and_one):
        seen.append(item)
    assert noted == [("evaluator", 0), ("evaluation", 2)]  # before the third is yielded; nothing to train, no measure


def test_closing_the_run_in_the_middle_of_a_batch_ends_its_worker(tmp_path):
    with LocalWorkers(workers=1).session() as crew:
        run = crew.run(TroubledTogether(tmp_path, times=1), [QUICK, HANGS, QUICK_TOO])
        assert next(run).coalition == QUICK.coalition
        run.close()
        assert multiprocessing.active_children() == []
        assert values(crew.run(Toy(), TASKS)) == values(InProcess().run(Toy(), TASKS))
