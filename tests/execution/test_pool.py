"""The pool's decisions, with workers that only pretend: no process, and a clock that only waiting moves."""

import re
import signal
import threading
from contextlib import contextmanager

import pytest
from toy_evaluators import done, values

from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
from diffcredit.execution import LocalWorkers, Task, pool
from diffcredit.execution.assignments import WorkerFailure
from diffcredit.execution.backend import Backend, BuildError, Ready, Started, Worker
from diffcredit.execution.pool import CHECK, TimeLimits, WorkerPool, stop_after_current

TEN = [Task(f"{i:04b}", 0, "estimate") for i in range(10)]


class FakeWorker(Worker):
    """Answers at once, one message at a time. ``behaviours`` say what it does at a coalition, or at ``"build"``, in
    place of answering, time after time."""

    def __init__(self, backend, number):
        super().__init__()
        self.backend, self.name, self.dead, self.inbox = backend, f"fake:{number}", False, []

    @property
    def alive(self):
        return not self.dead

    def build(self, payload):
        self.backend.built.append((self.name, payload))
        self._do("build", Ready(self.backend.at_once))

    def evaluate(self, tasks):
        self.backend.batches.append([task.coalition for task in tasks])
        for task in tasks:
            if len(tasks) > self.backend.room:
                self.inbox.append(WorkerFailure(self.name, "out of memory", "no memory"))
            elif self._do(task.coalition, done(task, int(task.coalition, 2))):
                continue
            break

    def _do(self, what, answer):
        """Whether it goes on afterwards."""
        behaviour = next(self.backend.behaviours.get(what, iter(())), None)
        if behaviour in (None, "again"):
            self.inbox += [answer] if behaviour is None else ["again", answer]
        elif isinstance(behaviour, BuildError):
            self.inbox.append(behaviour)
        elif behaviour != "hangs":
            self.inbox.append(WorkerFailure(self.name, behaviour, f"{self.name} {behaviour}"))
        return behaviour is None

    def receive(self):
        if self.dead:
            return [WorkerFailure(self.name, "lost", "died")]
        message = self.inbox.pop(0)
        return [] if message == "again" else [message]

    def kill(self):
        assert self.name not in self.backend.killed
        self.backend.killed.append(self.name)
        return [message for message in self.inbox if not isinstance(message, WorkerFailure)]


class FakeBackend(Backend):
    def __init__(self, clock, workers=1, at_once=1, room=99, **behaviours):
        self.clock, self.workers, self.at_once, self.room = clock, workers, at_once, room
        self.behaviours = {name.removeprefix("at_"): iter(each) for name, each in behaviours.items()}
        self.started, self.built, self.batches, self.killed, self.ended, self.retired = 0, [], [], [], [], []
        self.blind, self.closed, self.delay = (), False, 0.0

    @contextmanager
    def payload(self, factory):
        yield factory

    def recruit(self, workers):
        self.started += (missing := max(0, self.workers - len(workers)))
        return [FakeWorker(self, self.started - missing + number) for number in range(missing)]

    def wait(self, workers, seconds):
        found = [] if seconds in self.blind else [worker for worker in workers if worker.inbox]
        self.clock[0] += self.delay if found else seconds
        return found

    def retire(self, worker, failure):
        if self.workers == 1:
            return False
        self.retired.append(failure.kind)
        self.workers -= 1
        return True

    def end(self, workers):
        self.ended += [worker.name for worker in workers]

    def close(self):
        self.closed = True


@pytest.fixture
def clock(monkeypatch):
    passed = [0.0]
    monkeypatch.setattr(pool.time, "monotonic", lambda: passed[0])
    return passed


@pytest.fixture
def make(clock):
    """A pool and its back end."""

    def made(retries=0, timeout=None, **options):
        backend = FakeBackend(clock, **options)
        return WorkerPool(backend, retries, timeout), backend

    return made


def results(tasks):
    return values(done(task, int(task.coalition, 2)) for task in tasks)


@pytest.mark.parametrize(("workers", "at_once"), [(1, 1), (3, 2)])
def test_tasks_are_taken_only_when_a_worker_can_start_them(make, workers, at_once):
    pooled, backend = make(workers=workers, at_once=at_once)
    taken, seen = 0, []

    def tasks():
        nonlocal taken
        for task in TEN:
            taken += 1
            assert taken - len(seen) <= workers * at_once
            yield task

    for item in pooled.run("f", tasks()):
        seen.append(item)
    assert values(seen) == results(TEN)
    assert max(map(len, backend.batches)) == at_once
    assert backend.started == workers


def test_busy_workers_are_served_while_there_is_no_task(make):
    pooled, backend = make(workers=2)
    assert list(pooled.run("f", [])) == []
    assert (backend.started, backend.built) == (0, [])  # for no task, nothing is started
    seen = []

    def tasks():
        yield TEN[0]
        while not seen:
            yield None
        yield TEN[1]

    for item in pooled.run("f", tasks()):
        seen.append(item)
    assert values(seen) == results(TEN[:2])


def test_a_failed_workers_task_is_repeated(make, told):
    pooled, backend = make(workers=1, retries=2, at_0001=["lost", "out of disk"])
    assert values(pooled.run("f", TEN[:3])) == results(TEN[:3])
    assert backend.killed == ["fake:0", "fake:1"]
    assert backend.retired == []
    assert (told()["worker lost"], told()["worker out of disk"], told()["worker ready"]) == (1, 1, 3)
    assert (told()["task given"], told()["task repeated"], told()["task answered"]) == (5, 2, 3)


def test_a_task_without_retries_left_fails_alone_with_the_last_reason(make):
    pooled, _ = make(retries=1, at_0001=["out of disk", "lost"])
    (failed,) = [item for item in pooled.run("f", TEN[:3]) if item.status == "failed"]
    assert (failed.coalition, failed.error) == ("0001", "given up at try 2: fake:1 lost")
    assert failed.worker == "fake:1"


def test_a_task_that_kills_its_worker_among_others_fails_alone_after_its_own_tries(make, told):
    pooled, backend = make(retries=1, at_once=3, at_0001=["lost"] * 9)
    items = list(pooled.run("f", TEN[:4]))
    (failed,) = [item for item in items if item.status == "failed"]
    assert failed.coalition == "0001"
    assert "given up at try 2" in failed.error
    assert values(item for item in items if item is not failed) == results([TEN[0], *TEN[2:4]])
    assert backend.batches == [["0000", "0001", "0010"], ["0001"], ["0010"], ["0001"], ["0011"]]
    assert told()["worker lost"] == 2 + 1 + 1  # one for each unanswered task
    assert (told()["task given"], told()["task repeated"], told()["task answered"]) == (7, 3, 3)


def test_batches_that_memory_does_not_hold_become_smaller_for_good(make):
    pooled, backend = make(workers=2, at_once=4, room=2)
    with pytest.warns(DiffcreditWarning, match="given 2 instead of 4 tasks at once") as warned:
        assert values(pooled.run("f", TEN[:5])) == results(TEN[:5])
    assert len(warned) == 1
    assert sorted(map(len, backend.batches)) == [1, 1, 1, 1, 1, 4]
    backend.batches.clear()
    assert values(pooled.run("f", TEN[5:])) == results(TEN[5:])
    assert sorted(map(len, backend.batches)) == [1, 2, 2]
    assert backend.retired == []


def test_the_second_time_that_a_device_fails_a_task_one_worker_retires(make):
    ways = ["out of memory", "lost", "GPU error", "timed out", "GPU error"]
    pooled, backend = make(workers=2, retries=5, at_0001=ways)
    assert values(pooled.run("f", TEN[:4])) == results(TEN[:4])
    assert backend.retired == ["GPU error"]  # not for the third, which may be the task's own fault
    assert len(pooled._workers) == 1


def test_a_device_that_cannot_hold_an_evaluator_retires_a_worker_or_ends_the_run(make):
    pooled, backend = make(workers=2, at_build=["out of memory"])
    assert values(pooled.run("f", TEN)) == results(TEN)
    assert backend.retired == ["out of memory"]
    with pytest.raises(DiffcreditError, match="before they are ready: fake:1 out of memory"):
        list(make(retries=1, at_build=["out of memory"] * 9)[0].run("f", TEN))


def test_workers_that_never_get_ready_end_the_run(make, monkeypatch):
    monkeypatch.setattr(FakeBackend, "places", 4)
    pooled, backend = make(retries=2, at_build=["lost"] * 99)
    with pytest.raises(DiffcreditError, match="before they are ready: fake:11 lost"):
        list(pooled.run("f", TEN))
    assert backend.started == 4 * (1 + 2)


@pytest.mark.parametrize(("mine", "error"), [(True, UserError), (False, DiffcreditError)])
def test_a_factory_that_raises_ends_the_run(make, mine, error):
    pooled, _ = make(at_build=[BuildError("no such checkpoint", user_error=mine)])
    with pytest.raises(DiffcreditError, match=r"^no such checkpoint$") as raised:
        list(pooled.run("f", TEN))
    assert type(raised.value) is error


def test_a_worker_that_hangs_is_killed_and_what_it_sent_counts(make, told):
    pooled, _ = make(retries=0, timeout=2.0, at_once=3, at_0010=["hangs"])
    assert values(pooled.run("f", TEN[:3])) == results(TEN[:3])
    assert (told()["worker timed out"], told()["task repeated"], told()["task given"]) == (1, 1, 4)
    pooled, _ = make(timeout=2.0, at_0001=["hangs"])
    failed = list(pooled.run("f", TEN[:2]))[1]
    assert re.fullmatch(r"given up at try 1: the worker fake:0 took longer than 2 s and was killed", failed.error)
    pooled, _ = make(timeout=0.2, at_build=["hangs"])
    with pytest.raises(DiffcreditError, match=r"before they are ready: .* took longer than 0.2 s"):
        list(pooled.run("f", TEN))


@pytest.mark.parametrize("seen_at_last", [True, False])
def test_evaluations_of_a_late_worker_count_whether_they_are_seen_before_or_after_it_is_killed(
    make, told, seen_at_last
):
    pooled, backend = make(timeout=5.0, at_once=3)
    run = pooled.run("f", TEN[:6])
    first = [next(run) for _ in range(3)]
    backend.blind = (CHECK,) if seen_at_last else (CHECK, 0)  # the driver does not see the next answers in time
    second = [next(run) for _ in range(3)]
    assert values([*first, *second]) == results(TEN[:6])
    assert backend.killed == ([] if seen_at_last else ["fake:0"])
    assert told()["worker timed out"] == 0


def test_time_limits_learn_from_whole_batches_that_trained(make, monkeypatch):
    learned, seen = [], []
    monkeypatch.setattr(TimeLimits, "record", lambda self, kind, seconds: learned.append((kind, len(seen))))
    pooled, _ = make(at_once=3)
    for item in pooled.run("f", [Task(coalition, 0, "estimate") for coalition in ("00", "01", "11", "00")]):
        seen.append(item)
    assert learned == [("evaluator", 0), ("evaluation", 2)]  # an endpoint alone says nothing


def test_an_idle_worker_that_dies_costs_no_task_a_try(make, told):
    pooled, backend = make(retries=0)

    def tasks():
        yield TEN[0]
        while not seen:
            yield None
        pooled._workers[0].dead = True
        yield TEN[1]

    seen = []
    for item in pooled.run("f", tasks()):
        seen.append(item)
    assert values(seen) == results(TEN[:2])
    assert (told()["worker lost"], told()["task repeated"], backend.started) == (1, 0, 2)


class RemoteWorker(FakeWorker):
    """Is up only once it has answered a ping, and may be lost unseen."""

    def __init__(self, backend, number):
        super().__init__(backend, number)
        self.awaiting = "start"
        self.ping()

    alive = True

    def ping(self):
        self._do("start", Started())
        return True


def test_workers_are_pinged_before_they_are_given_a_task(make, monkeypatch, told):
    monkeypatch.setattr("test_pool.FakeWorker", RemoteWorker)
    pooled, backend = make(workers=2, at_start=["hangs", None, "lost"])
    assert values(pooled.run("f", TEN[:2])) == results(TEN[:2])
    assert {name for name, _ in backend.built} == {"fake:1"}  # the other waits for room
    assert values(pooled.run("f", TEN[2:4])) == results(TEN[2:4])
    assert (told()["worker lost"], told()["task repeated"]) == (1, 0)


def test_workers_stay_between_runs_and_build_for_another_factory_only(make):
    pooled, backend = make(workers=2)
    for factory in ("f", "f", "g"):
        assert values(pooled.run(factory, TEN)) == results(TEN)
    assert sorted(backend.built) == [(f"fake:{number}", factory) for number in range(2) for factory in "fg"]
    assert backend.ended == []
    pooled.close()
    assert sorted(backend.ended) == ["fake:0", "fake:1"]
    assert backend.closed


def test_closing_a_run_ends_its_busy_workers(make):
    pooled, backend = make(workers=2, at_once=2)
    run = pooled.run("f", TEN[:3])
    next(run)
    run.close()
    assert set(backend.ended) == {"fake:0", "fake:1"}
    assert values(pooled.run("f", TEN)) == results(TEN)


def test_the_first_interrupt_lets_the_evaluations_under_way_finish(make, monkeypatch):
    stop, enabled = threading.Event(), []

    @contextmanager
    def stop_after_current(drains):
        enabled.append(drains)
        yield stop

    monkeypatch.setattr(pool, "stop_after_current", stop_after_current)
    pooled, backend = make(workers=2, at_once=2)
    backend.drains = True

    def tasks():
        yield from TEN[:4]
        pytest.fail("another task was begun")

    run = pooled.run("f", tasks())
    seen = [next(run)]
    stop.set()
    with (
        pytest.warns(DiffcreditWarning, match="stopping: 2 evaluations under way are finished first"),
        pytest.raises(KeyboardInterrupt),
    ):
        seen.extend(run)
    assert values(seen) == results(TEN[:4])
    assert enabled == [True]


def test_ctrl_c_in_two_steps():
    with stop_after_current(enabled=True) as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stop_after_current(enabled=False):
        signal.raise_signal(signal.SIGINT)


MINUTE, HOUR = 60, 3600


@pytest.mark.parametrize(
    ("timeout", "longest", "limit"),
    [
        (None, None, 24 * HOUR),
        (None, 60.0, 10 * MINUTE),
        (None, 5 * HOUR, 50 * HOUR),
        (30.0, None, 30.0),
        (30.0, 5 * HOUR, 30.0),
    ],
)
def test_ten_times_the_longest_at_least_ten_minutes_or_as_asked(timeout, longest, limit):
    limits = TimeLimits(timeout)
    if longest is not None:
        limits.record("evaluation", longest)
        limits.record("evaluation", longest / 2)
    assert limits.limit("evaluation") == limit
    assert limits.limit("evaluator") == (timeout or 24 * HOUR)


def test_time_in_which_nobody_looked_hardly_counts(clock):
    watch = TimeLimits(None)
    for _ in range(3):
        clock[0] += 1.0
        watch.read()
    assert watch.now == 3.0
    clock[0] += 3 * 24 * HOUR  # over the weekend
    assert watch.read() == 3.0 + pool.PAUSE


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_refuses_what_is_no_time(wrong):
    with pytest.raises(UserError, match=r"^timeout: .*; must be more than 0 seconds$"):
        LocalWorkers(1, timeout=wrong)
