"""Several drivers on one study: nothing is done twice, nothing is lost, whoever dies or sleeps."""

import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

import cooperating
from cooperating import RECIPE, STUDY, TASKS, Noting, drive, prepare
from diffcredit.execution import InProcess, LocalWorkers, Task
from diffcredit.execution.driver import Driver
from diffcredit.ledger import Ledger
from diffcredit.study.study import Study
from running_study import running, wait_until
from tiny_study import recorded_values, rows, run_here, write_study

HELD = TASKS[3].coalition


@pytest.fixture
def process(database, tmp_path):
    """Starts drivers in processes of their own; they are gone afterwards."""
    prepare(database)
    with ExitStack() as drivers:

        def started(hold="", lease=60.0, value=0.0, within=()):
            command = [*within, sys.executable, cooperating.__file__, database, tmp_path, hold, lease, value]
            process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)
            drivers.callback(process.wait)
            drivers.callback(process.kill)
            return process

        yield started


@pytest.fixture
def thread(database, tmp_path):
    """Starts drivers in threads, each with its own connections."""
    prepare(database)
    with ThreadPoolExecutor() as threads, ExitStack() as ledgers:

        def started(hold="", lease=60.0, value=0.0, renews=True):
            ledger = ledgers.enter_context(Ledger.open(database))
            if not renews:
                ledger.renew = lambda held, seconds: list(held)
            return threads.submit(drive, ledger, Noting(tmp_path, hold, value), lease)

        try:
            yield started
        finally:
            (tmp_path / "go").touch()
            threads.shutdown()


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
    assert sorted((each.coalition, each.values[0].value) for each in done) == [
        (task.coalition, float(int(task.coalition, 2))) for task in TASKS
    ]


def test_two_drivers_do_nothing_twice(thread, database, tmp_path):
    made = [driver.result(60) for driver in [thread(), thread()]]
    assert begun(tmp_path) == Counter(task.coalition for task in TASKS)
    assert sorted(made[0] + made[1]) == [f"{task.coalition} done" for task in TASKS]
    assert len(recorded(database)) == len(TASKS)
    check_done_once(database)


on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
on_sqlite_and_if_slow_on_a_server = pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)


@on_sqlite_and_if_slow_on_a_server
def test_a_killed_drivers_claims_are_taken_over(process, database, tmp_path):
    """At once, long before they expire: it ran on this machine, and everybody sees that it is gone."""
    victim = process(hold=HELD, lease=500.0)
    wait_until(lambda: HELD in begun(tmp_path))
    victim.kill()
    victim.wait()
    (tmp_path / "go").touch()
    with Ledger.open(database) as ledger:
        assert f"{HELD} done" in drive(ledger, Noting(tmp_path), 500.0)
    assert begun(tmp_path) == Counter({task.coalition: 1 for task in TASKS}) + Counter([HELD])
    check_done_once(database)


@on_sqlite_and_if_slow_on_a_server
def test_a_driver_that_is_alive_keeps_what_it_holds(thread, database, tmp_path):
    """Its lease is shorter than its evaluation, and renewed; the other driver waits for it."""
    lease = 2.0  # long enough that a busy machine renews it in time
    holder = thread(hold=HELD, lease=lease)
    wait_until(lambda: HELD in begun(tmp_path))
    other = thread(lease=lease)
    wait_until(lambda: len(recorded(database)) == len(TASKS) - 1)
    with pytest.raises(StillRunning):
        other.result(1.5 * lease)
    (tmp_path / "go").touch()
    assert holder.result(60)[-1] == f"{HELD} done" not in other.result(60)
    assert begun(tmp_path) == Counter(task.coalition for task in TASKS)
    check_done_once(database)


CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc"]


@on_sqlite
@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run([*CONTAINER, "true"], capture_output=True).returncode != 0,
    reason="no namespaces here",
)
def test_a_driver_in_a_container_does_not_take_over_from_a_live_one(thread, process, database, tmp_path):
    """There the machine has the same name, and the live driver's process is not to be seen."""
    holder = thread(hold=HELD)
    wait_until(lambda: HELD in begun(tmp_path))
    other = process(within=CONTAINER, lease=2.0)
    wait_until(lambda: len(recorded(database)) == len(TASKS) - 1)  # the other did those behind HELD
    (tmp_path / "go").touch()
    assert holder.result(60)[-1] == f"{HELD} done"
    assert other.wait(60) == 0
    assert begun(tmp_path) == Counter(task.coalition for task in TASKS)
    check_done_once(database)


def check_late_result(database, made, value):
    """The sleeper's result comes after another's: the same is nothing new, another one a failure."""
    evaluations = recorded(database)
    done = {each.coalition: each for each in evaluations if each.status == "done"}
    assert len(done) == len(TASKS)
    assert done[HELD].values[0].value == int(HELD, 2)  # the first that was recorded stays
    errors = [(each.coalition, each.error) for each in evaluations if each.status == "failed"]
    assert made[-1] == f"{HELD} {'failed' if value else 'done'}"
    assert [coalition for coalition, _ in errors] == ([HELD] if value else [])
    assert all("value was 3.0 and is 3.5 now" in error for _, error in errors)


@on_sqlite
@pytest.mark.parametrize("value", [0.0, 0.5], ids=["equal", "contradicting"])
def test_a_driver_whose_claim_expired_brings_its_result_late(thread, database, tmp_path, value):
    sleeper = thread(hold=HELD, lease=0.2, value=value, renews=False)
    wait_until(lambda: HELD in begun(tmp_path))
    assert f"{HELD} done" in drive(Ledger.open(database), Noting(tmp_path), 0.2)
    (tmp_path / "go").touch()
    check_late_result(database, sleeper.result(60), value)


@pytest.mark.slow
def test_a_driver_that_slept_brings_its_result_late(process, database, tmp_path):
    sleeper = process(hold=HELD, lease=1.0, value=0.5)
    wait_until(lambda: HELD in begun(tmp_path))
    sleeper.send_signal(signal.SIGSTOP)
    (tmp_path / "go").touch()
    assert process(lease=1.0).wait(60) == 0
    sleeper.send_signal(signal.SIGCONT)
    told, _ = sleeper.communicate(timeout=60)
    check_late_result(database, told.splitlines(), 0.5)


@pytest.fixture
def ledger(tmp_path):
    url = str(tmp_path / "ledger.db")
    prepare(url)
    with Ledger.open(url) as opened:
        yield opened


def made_by(ledger, evaluator, tasks, executor=None, on_recorded=lambda evaluation: None, **options):
    driver = Driver(ledger, STUDY, RECIPE, on_recorded, options.pop("mark", 0), **options)
    return list(driver.run(executor or InProcess(), evaluator, tasks))


def test_an_interrupted_driver_gives_its_claims_back(ledger, tmp_path):
    class Interrupted(Noting):
        def evaluate(self, tasks):
            assert [each.coalition for each in ledger.claims(STUDY)] == [TASKS[0].coalition]
            raise KeyboardInterrupt
            yield

    with pytest.raises(KeyboardInterrupt):
        made_by(ledger, Interrupted(tmp_path), TASKS)
    assert ledger.claims(STUDY) == []


def test_what_others_recorded_is_heard_of_and_not_done_again(ledger, tmp_path):
    first = made_by(ledger, Noting(tmp_path), TASKS[:4])
    heard = []
    made = made_by(ledger, Noting(tmp_path), TASKS[:6], on_recorded=heard.append)
    assert [each.coalition for each in made] == [task.coalition for task in TASKS[4:6]]
    assert heard == [*first, *made]


def test_an_evaluation_with_another_purpose_serves(ledger, tmp_path):
    made_by(ledger, Noting(tmp_path), [replace(TASKS[0], purpose="endpoint")])
    _, mark = ledger.evaluations_since(STUDY, RECIPE, 0)
    heard = []
    assert made_by(ledger, Noting(tmp_path), TASKS[:1], on_recorded=heard.append, mark=mark) == []
    assert [(each.coalition, each.purpose) for each in heard] == [(TASKS[0].coalition, "estimate")]


def test_local_workers_wait_for_what_others_hold(ledger, tmp_path):
    """All tasks are somebody else's: the workers are not started, and the run ends when the other is done."""
    theirs = [ledger.claim(STUDY, RECIPE, task.coalition, 0, "another:1:x", 60) for task in TASKS[:2]]
    assert None not in theirs

    def wanted():
        yield from TASKS[:2]
        for each in Noting(tmp_path).evaluate(TASKS[:2]):
            ledger.record(STUDY, RECIPE, each)

    heard = []
    assert made_by(ledger, Noting(tmp_path), wanted(), LocalWorkers(2), on_recorded=heard.append) == []
    assert len(heard) == 2


def test_a_failure_can_be_claimed_by_the_next(ledger, tmp_path):
    class Failing(Noting):
        def evaluate(self, tasks):
            raise RuntimeError("out of memory")
            yield

    for evaluator, status in ((Failing(tmp_path), "failed"), (Noting(tmp_path), "done")):
        (made,) = made_by(ledger, evaluator, [Task("0001", 5, "pilot")])
        assert made.status == status


def test_who_holds_nothing_asks_the_ledger_for_nothing(ledger, tmp_path, monkeypatch):
    """A write of nothing would still wait for whoever has the file locked."""
    asked = []
    for name in ("renew", "release"):
        monkeypatch.setattr(ledger, name, lambda *arguments, name=name: asked.append(name) or [])

    def wanted():
        time.sleep(0.2)  # many times as long as claims would go without being renewed
        yield from ()

    assert made_by(ledger, Noting(tmp_path), wanted(), lease=0.03) == []
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
