"""On a real cluster on this machine, with real kills. What the pool decides is tested in test_pool.py."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
from toy_evaluators import (
    KILLED,
    NO_DISK,
    NO_MEMORY,
    QUICK,
    STOPS,
    CannotBuild,
    Devices,
    Meeting,
    Shifted,
    Strange,
    Toy,
    Troubled,
    TroubledTogether,
    Wayward,
    alive,
    pid_of,
    pids,
    values,
)

from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
from diffcredit.execution import InProcess, RayWorkers, Task
from diffcredit.execution.assignments import WorkerFailure
from diffcredit.execution.ray import cluster as ray_cluster
from diffcredit.study.study import Study
from running_study import wait_until
from tiny_study import recorded_values, run_here, write_study

pytest.importorskip("ray", reason='ray is not installed: pip install "diffcredit[cluster]"')

TASKS = [Task(f"{i:02b}", replicate, "estimate") for i in range(4) for replicate in range(2)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head with two CPUs, in processes of their own that find the toy evaluators."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        yield cluster
        cluster.shutdown()


@pytest.fixture
def workers(cluster):
    def make(workers: int | None = None, **options) -> RayWorkers:
        return RayWorkers(workers, cluster.address, **options)

    return make


def test_a_session_keeps_its_workers_and_answers_come_back_whatever_the_evaluator_does(workers, tmp_path):
    for name in ("met", "built"):
        (tmp_path / name).mkdir()
    with workers().session() as pool:
        there, shifted = list(pool.run(Meeting(tmp_path / "met", 2), TASKS)), list(pool.run(Shifted(), TASKS))
        raising, (strange,) = list(pool.run(Wayward("raises"), TASKS[::2])), pool.run(Strange(), TASKS[:1])
        with pytest.raises(DiffcreditError, match=r"(?s)could not build.*Traceback.*no such checkpoint") as raised:
            list(pool.run(CannotBuild("raises", tmp_path / "built"), TASKS[:1]))
        assert not isinstance(raised.value, UserError)
        with pytest.raises(UserError, match=r"^retraining.steps: -1; must be at least 1$"):
            list(pool.run(CannotBuild("mistake", tmp_path / "built"), TASKS[:1]))
        with pytest.raises(TypeError, match="cannot be sent"):
            list(pool.run(lambda: Toy(), TASKS))
    here = list(InProcess().run(Toy(), TASKS))
    nodes = {item.worker for item in there} - {here[0].worker}
    assert len(nodes) == 2
    assert {item.worker for item in (*shifted, *raising, strange)} <= nodes  # and nothing was repeated
    assert values(there) == values(here)
    assert values(shifted) == values(InProcess().run(Shifted(), TASKS))
    # which worker is given which of the tasks together depends on who is ready first; the first of each is answered
    done = [item for item in raising if item.status == "done"]
    burnt = [item for item in raising if item.status == "failed"]
    assert sorted(item.coalition for item in raising) == [task.coalition for task in TASKS[::2]]
    assert 1 <= len(done) <= 2
    assert {*values(done)} <= {*values(here)}
    assert all("the GPU is on fire" in item.error for item in burnt)
    assert strange.status == "failed"
    assert "not JSON serializable" in strange.error
    assert len(pids(tmp_path / "built")) == 2


@pytest.mark.slow
def test_a_studys_numbers_are_those_of_this_process(workers, tmp_path):
    here, there = (write_study(tmp_path / name, {"stop.evaluations": 3}) for name in ("here", "there"))
    run_here(here)
    assert {item.status for item in Study.load(there).evaluate(workers(1))} == {"done"}
    assert len(recorded_values(here.parent)) >= 3 * 3
    assert recorded_values(there.parent) == recorded_values(here.parent)


def test_a_killed_workers_task_is_repeated_and_answers_before_memory_ran_out_count(workers, tmp_path, told, caplog):
    """All in one batch: the second runs out of memory, alone the third kills its worker."""
    tasks = [QUICK, NO_MEMORY, KILLED]
    with pytest.warns(DiffcreditWarning, match="1 instead of 3 tasks at once"):
        results = list(workers(1, retries=1).run(TroubledTogether(tmp_path, times=1), tasks))
    events = told()
    assert values(results) == values(InProcess().run(Toy(), tasks))
    assert (events["worker out of memory"], events["worker lost"]) == (2, 1)
    assert (events["task given"], events["task repeated"], events["task answered"]) == (6, 3, 3)
    (lost,) = [record.fields for record in caplog.records if record.getMessage() == "worker lost"]
    assert re.fullmatch(r"the worker \S+ was lost: .*", lost["reason"])
    wait_until(lambda: not any(alive(pid) for pid in pids(tmp_path)))


@pytest.mark.slow  # as local workers are tested among the quick ones
def test_workers_that_stop_or_run_out_of_disk_are_replaced(workers, tmp_path, impatient, told):
    tasks = [QUICK, STOPS, NO_DISK]
    results = list(workers(1, retries=1).run(Troubled(tmp_path, times=1), tasks))
    events = told()
    assert values(results) == values(InProcess().run(Toy(), tasks))
    assert (events["worker timed out"], events["worker out of disk"], events["worker started"]) == (1, 1, 3)
    assert (events["task given"], events["task repeated"], events["task answered"]) == (5, 2, 3)
    wait_until(lambda: not any(alive(pid) for pid in pids(tmp_path)))


def test_workers_that_share_a_device_become_fewer_but_never_none():
    failure = WorkerFailure("w", "out of memory", "")
    for gpus, wanted, fewer in ((0.5, 2, True), (0.0, 2, True), (0.5, 1, False), (1.0, 2, False)):
        backend = ray_cluster.RayBackend(RayWorkers())
        backend._gpus, backend._wanted = gpus, wanted
        with pytest.warns(DiffcreditWarning, match="1 instead of 2 workers") if fewer else nullcontext():
            assert backend.retire(None, failure) is fewer


@pytest.mark.slow
def test_a_lost_nodes_task_is_repeated_and_a_node_that_joins_gets_a_worker(cluster, workers, tmp_path):
    doomed = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    tasks = [Task(f"{i:04b}", 0, "estimate") for i in range(8)]
    with ThreadPoolExecutor() as pool:
        # no task is done before a fourth worker is at work
        run = pool.submit(lambda: list(workers().run(Meeting(tmp_path, 4), tasks)))
        wait_until(lambda: len(pids(tmp_path)) == 3)
        before = set(pids(tmp_path))
        cluster.remove_node(doomed, allow_graceful=False)
        joined = cluster.add_node(num_cpus=1)
        results = run.result(timeout=60)
    cluster.remove_node(joined)
    assert values(results) == values(InProcess().run(Toy(), tasks))
    worked = {pid_of(item.worker) for item in results}
    assert len(before & worked) == 2
    assert len(worked - before) == 1


@pytest.mark.slow
def test_says_when_no_node_has_room_and_waits_for_one(cluster, workers, monkeypatch):
    told = []

    def tell(message: str) -> None:
        told.append(message)
        cluster.add_node(num_cpus=3)

    monkeypatch.setattr(ray_cluster, "warn", tell)
    (item,) = workers(threads=3).run(Toy(), TASKS[:1])
    cluster.remove_node(cluster.list_all_nodes()[-1])
    assert item.status == "done"
    assert told == ["no node has 3 CPUs for a worker yet; waiting for one"]


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "count", "seen"), [(0.5, 4, {"0": 2, "1": 2}), (None, 2, {"0": 1, "1": 1})])
def test_gpus_are_shared_or_not_as_asked(cluster, workers, tmp_path, gpus, count, seen):
    """Ray counts GPUs and gives them out by their numbers, whether or not the node has them."""
    node = cluster.add_node(num_cpus=8, num_gpus=2)
    cluster.wait_for_nodes()
    items = list(workers(gpus=gpus).run(Devices(tmp_path, count), TASKS))
    cluster.remove_node(node)
    devices = dict(sorted((item.worker, item.numerics["gpus"]) for item in items))
    assert Counter(devices.values()) == seen


@pytest.mark.slow
def test_prometheus_is_told_how_many_evaluations_there_were(workers):
    pytest.importorskip("aiohttp_cors", reason="Ray exports metrics only with ray[default]")
    import ray

    def told() -> dict[str, float]:
        counts = dict.fromkeys(("done", "failed"), 0.0)
        for node in ray.nodes():
            if node["Alive"]:
                url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
                text = urllib.request.urlopen(url).read().decode()
                for status, value in re.findall(r'diffcredit_evaluations_total\{.*status="(\w+)".*\} (\S+)', text):
                    counts[status] += float(value)
        return counts

    with workers(1).session() as crew:
        list(crew.run(Toy(), TASKS[:1]))
        before = told()
        list(crew.run(Wayward("raises"), TASKS[::2]))
        wait_until(lambda: told()["failed"] >= before["failed"] + 3)


@pytest.mark.slow
def test_another_version_on_a_node_is_refused(workers, monkeypatch):
    monkeypatch.setattr(ray_cluster, "package_versions", lambda: {"diffcredit": "9.9"})
    with pytest.raises(UserError, match=r"has diffcredit .*, this machine 9\.9; install the same on all"):
        list(workers(1).run(Toy(), TASKS))


DRIVER = """
import json, sys
from pathlib import Path
from toy_evaluators import Meeting
from diffcredit.execution import RayWorkers, Task

if __name__ == "__main__":
    tasks = (Task(f"{i:04b}", 0, "pilot") for i in range(16))
    for item in RayWorkers(2, sys.argv[1]).run(Meeting(Path(sys.argv[2]), 3), tasks):
        print(json.dumps([item.coalition, item.worker]), flush=True)
"""


@pytest.fixture
def driver(cluster, tmp_path):
    """A process whose two workers wait for a third, for which a file may stand, in a group as in a terminal."""
    started = tmp_path / "started"
    started.mkdir()
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    process = subprocess.Popen(
        [sys.executable, script, cluster.address, started],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(pids(started)) == 2)
    yield process, pids(started), started / "0"
    if process.poll() is None:
        process.kill()
    process.communicate()


@pytest.mark.slow  # what Ctrl-C does is tested with pretended workers among the quick ones
def test_an_interrupt_lets_what_is_under_way_finish(driver):
    process, workers, third = driver
    os.killpg(process.pid, signal.SIGINT)
    assert "stopping: 2 evaluations under way are finished first" in process.stderr.readline()
    third.touch()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    answers = [json.loads(line) for line in out.splitlines() if line.startswith("[")]  # Ray may add words of its own
    assert sorted(coalition for coalition, _ in answers) == ["0000", "0001"]  # and nothing else was begun
    assert {pid_of(worker) for _, worker in answers} == set(workers)
    wait_until(lambda: not any(alive(pid) for pid in workers))


@pytest.mark.slow
def test_a_second_interrupt_ends_at_once(driver):
    process, workers, _ = driver
    os.killpg(process.pid, signal.SIGINT)
    assert "stopping" in process.stderr.readline()
    os.killpg(process.pid, signal.SIGINT)  # the third that both workers wait for never comes
    out, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert not any(line.startswith("[") for line in out.splitlines())
    wait_until(lambda: not any(alive(pid) for pid in workers))


@pytest.mark.slow
def test_a_killed_driver_leaves_no_workers(driver):
    process, workers, _ = driver
    process.kill()
    wait_until(lambda: not any(alive(pid) for pid in workers))


def test_refuses_senseless_numbers():
    assert list(RayWorkers(address="nowhere:1").run(Toy(), [])) == []  # for no task, no cluster is called
    for wrong in ({"workers": 0}, {"threads": 0}, {"gpus": -0.5}, {"retries": -1}):
        with pytest.raises(UserError, match="must be at least"):
            RayWorkers(**wrong)
    with pytest.raises(UserError, match=r"gpus: 1.5; a share of one, or a whole number"):
        RayWorkers(gpus=1.5)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "^--address 127.0.0.1:1: nobody answers there .*refused.*; is the cluster's head up"),
        ("head", "^--address head: HOST:PORT is accepted"),
        ("head:99999", "^--address head:99999: HOST:PORT is accepted"),
    ],
)
def test_an_address_without_a_cluster_is_refused(address, message):
    with pytest.raises(UserError, match=message):
        list(RayWorkers(address=address).run(Toy(), TASKS))


def test_ray_is_asked_for_by_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r'pip install "diffcredit\[cluster\]"'):
        list(RayWorkers().run(Toy(), TASKS))
