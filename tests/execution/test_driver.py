"""Drivers in processes of their own on one study: nothing is done twice, nothing is lost, whoever dies or sleeps."""

import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

import cooperating
from cooperating import RECIPE, STUDY, TASKS, Noting, prepare
from diffcredit.execution import InProcess, LocalWorkers, Task
from diffcredit.execution.driver import Driver
from diffcredit.ledger import Ledger
from diffcredit.study.study import Study
from running_study import running, wait_until
from tiny_study import recorded_values, rows, run_here, write_study

HELD = TASKS[3].coalition

on_a_server_if_slow = pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture
def start(database, tmp_path):
    """Starts drivers; they are gone afterwards."""
    prepare(database)
    with ExitStack() as drivers:

        def started(hold="", lease=60.0, value=0.0):
            command = [sys.executable, cooperating.__file__, database, tmp_path, hold, lease, value]
            process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)
            drivers.callback(process.wait)
            drivers.callback(process.kill)
            return process

        yield started


def begun(folder: Path) -> Counter[str]:
    """How often each coalition's evaluation was begun."""
    files = folder.glob("begun-*")
    return Counter({file.name.removeprefix("begun-"): len(file.read_text().splitlines()) for file in files})


def recorded(database):
    with Ledger.open(database) as ledger:
        assert ledger.audit(STUDY).problems == ()
        return ledger.evaluations(STUDY, RECIPE)


def check_done_once(database):
    done = [each for each in recorded(database) if each.status == "done"]
    assert sorted(each.coalition for each in done) == [task.coalition for task in TASKS]
    assert {each.coalition: each.values[0].value for each in done} == {
        task.coalition: float(int(task.coalition, 2)) for task in TASKS
    }


def test_two_drivers_do_nothing_twice(start, database, tmp_path):
    processes = [start(), start()]
    made = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert begun(tmp_path) == Counter(task.coalition for task in TASKS)
    assert sorted(made[0] + made[1]) == [f"{task.coalition} done" for task in TASKS]
    assert len(recorded(database)) == len(TASKS)
    check_done_once(database)


@on_a_server_if_slow
def test_a_killed_drivers_claims_are_taken_over(start, database, tmp_path):
    """At once, long before they expire: it ran on this machine, and everybody sees that it is gone."""
    victim = start(hold=HELD, lease=500.0)
    wait_until(lambda: HELD in begun(tmp_path))
    victim.kill()
    victim.wait()
    (tmp_path / "go").touch()
    other = start(lease=500.0)
    assert other.wait(60) == 0
    assert begun(tmp_path) == Counter({task.coalition: 1 for task in TASKS}) + Counter([HELD])
    check_done_once(database)


@on_a_server_if_slow
def test_a_driver_that_is_alive_keeps_what_it_holds(start, database, tmp_path):
    """Its lease is shorter than its evaluation, and renewed; the other driver waits for it."""
    holder = start(hold=HELD, lease=1.5)
    wait_until(lambda: HELD in begun(tmp_path))
    other = start(lease=1.5)
    wait_until(lambda: len(recorded(database)) == len(TASKS) - 1)
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(3)
    (tmp_path / "go").touch()
    assert (holder.wait(60), other.wait(60)) == (0, 0)
    assert begun(tmp_path) == Counter(task.coalition for task in TASKS)
    check_done_once(database)


@on_a_server_if_slow
@pytest.mark.parametrize(
    "value", [pytest.param(0.0, marks=pytest.mark.slow, id="equal"), pytest.param(0.5, id="contradicting")]
)
def test_a_driver_that_slept_brings_its_result_late(start, database, tmp_path, value):
    sleeper = start(hold=HELD, lease=1.0, value=value)
    wait_until(lambda: HELD in begun(tmp_path))
    sleeper.send_signal(signal.SIGSTOP)
    before = [each.coalition for each in recorded(database)]
    (tmp_path / "go").touch()
    other = start(lease=1.0)
    assert other.wait(60) == 0
    sleeper.send_signal(signal.SIGCONT)
    told, _ = sleeper.communicate(timeout=60)
    assert sleeper.returncode == 0
    evaluations = recorded(database)
    done = {each.coalition: each for each in evaluations if each.status == "done"}
    assert len(done) == len(TASKS)
    assert done[HELD].values[0].value == int(HELD, 2)  # the first that was recorded stays
    failed = [each for each in evaluations if each.status == "failed"]
    if value == 0.0:
        assert failed == []
        assert told.splitlines()[-1] == f"{HELD} done"
        check_done_once(database)
    else:
        (contradiction,) = failed
        assert contradiction.coalition == HELD not in before
        assert "value was 3.0 and is 3.5 now" in contradiction.error
        assert told.splitlines()[-1] == f"{HELD} failed"


@on_a_server_if_slow
def test_an_interrupted_driver_gives_its_claims_back(start, database, tmp_path):
    victim = start(hold=HELD, lease=500.0)
    wait_until(lambda: HELD in begun(tmp_path))
    victim.send_signal(signal.SIGINT)
    victim.wait(60)
    (tmp_path / "go").touch()
    assert start(lease=500.0).wait(60) == 0
    check_done_once(database)


@pytest.fixture
def ledger(tmp_path):
    url = str(tmp_path / "ledger.db")
    prepare(url)
    with Ledger.open(url) as opened:
        yield opened


def test_what_others_recorded_is_heard_of_and_not_done_again(ledger, tmp_path):
    first = list(Driver(ledger, STUDY, RECIPE, lambda _: None, 0).run(InProcess(), Noting(tmp_path, "", 0), TASKS[:4]))
    heard = []
    driver = Driver(ledger, STUDY, RECIPE, heard.append, 0)
    made = list(driver.run(InProcess(), Noting(tmp_path, "", 0), TASKS[:6]))
    assert [each.coalition for each in made] == [task.coalition for task in TASKS[4:6]]
    assert heard == [*first, *made]


def test_an_evaluation_with_another_purpose_serves(ledger, tmp_path):
    endpoint = replace(TASKS[0], purpose="endpoint")
    list(Driver(ledger, STUDY, RECIPE, lambda _: None, 0).run(InProcess(), Noting(tmp_path, "", 0), [endpoint]))
    _, mark = ledger.evaluations_since(STUDY, RECIPE, 0)
    heard = []
    driver = Driver(ledger, STUDY, RECIPE, heard.append, mark)
    assert list(driver.run(InProcess(), Noting(tmp_path, "", 0), TASKS[:1])) == []
    assert [(each.coalition, each.purpose) for each in heard] == [(TASKS[0].coalition, "estimate")]


def test_local_workers_wait_for_what_others_hold(ledger, tmp_path):
    """All tasks are somebody else's: the workers are not started, and the run ends when the other is done."""
    theirs = [ledger.claim(STUDY, RECIPE, task.coalition, 0, "another:1:x", 60) for task in TASKS[:2]]
    assert None not in theirs
    asked = []

    def wanted():
        yield from TASKS[:2]
        asked.append(True)
        for each in Noting(tmp_path, "", 0).evaluate(TASKS[:2]):
            ledger.record(STUDY, RECIPE, each)

    heard = []
    driver = Driver(ledger, STUDY, RECIPE, heard.append, 0)
    assert list(driver.run(LocalWorkers(2), Noting(tmp_path, "", 0), wanted())) == []
    assert asked == [True]
    assert len(heard) == 2


def test_a_failure_can_be_claimed_by_the_next(ledger, tmp_path):
    class Failing(Noting):
        def evaluate(self, tasks):
            raise RuntimeError("out of memory")
            yield

    for evaluator, status in ((Failing(tmp_path, "", 0), "failed"), (Noting(tmp_path, "", 0), "done")):
        (made,) = Driver(ledger, STUDY, RECIPE, lambda _: None, 0).run(
            InProcess(), evaluator, [Task("00001", 5, "pilot")]
        )
        assert made.status == status


def test_who_holds_nothing_asks_the_ledger_for_nothing(ledger, tmp_path, monkeypatch):
    """A write of nothing would still wait for whoever has the file locked."""
    asked = []
    for name in ("renew", "release"):
        monkeypatch.setattr(ledger, name, lambda *arguments, name=name: asked.append(name) or [])

    def wanted():
        time.sleep(0.3)  # many times as long as claims would go without being renewed
        yield from ()

    driver = Driver(ledger, STUDY, RECIPE, lambda _: None, 0, lease=0.03)
    assert list(driver.run(InProcess(), Noting(tmp_path, "", 0), wanted())) == []
    assert asked == []


@pytest.mark.slow
def test_two_commands_run_one_study(finished):
    """``diffcredit run`` twice at the same time: together they make what one would have made."""
    alone = finished.parent / "alone"
    shutil.copytree(finished, alone)
    changes = {"stop.evaluations": 30}
    run_here(write_study(alone, changes))
    file = write_study(finished, changes)
    with running(file, 1) as first, running(file, 2) as second:
        for process in (first, second):
            told = process.communicate(timeout=300)[0]
            assert process.returncode == 0, told
    assert recorded_values(finished) == recorded_values(alone)
    assert rows(finished, "SELECT count(*) FROM evaluations") == [(32,)]
    with Study.load(file).ledger() as ledger:
        assert ledger.audit("tiny").problems == ()
