import os

import pytest
import torch
from toy_evaluators import (
    Ahead,
    CannotBuild,
    Closed,
    OutOfMemoryError,
    Threads,
    Together,
    Toy,
    TroubledTogether,
    Wayward,
    batches,
    values,
)

from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.execution import InProcess, Task, in_process

TASKS = [Task(f"{i:02b}", replicate, "estimate") for i in range(4) for replicate in range(2)]
TEN = [Task(f"{i:04b}", 0, "estimate") for i in range(10)]


def test_none_among_the_tasks_says_that_there_may_be_one_soon(monkeypatch):
    monkeypatch.setattr(in_process, "ASK_AGAIN", 0.0)
    results = list(InProcess().run(Toy(), [None, TASKS[0], None, None, TASKS[3], None]))
    assert [item.key for item in results] == [("00", 0), ("01", 1)]


def test_builds_no_evaluator_for_no_task(tmp_path, monkeypatch):
    monkeypatch.setattr(in_process, "ASK_AGAIN", 0.0)
    with pytest.raises(UserError, match="threads: 0"):
        InProcess(threads=0)
    for tasks in ([], [None]):
        assert list(InProcess().run(CannotBuild("raises", tmp_path), tasks)) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_the_callers_again_between_results(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    environment, torchs_own = dict(os.environ), torch.__config__.parallel_info()
    try:
        for item in InProcess(threads=threads).run(Threads(eager=True), TASKS[:2]):
            assert item.numerics["threads"] == [threads]
            assert torch.get_num_threads() == 3
            assert torch.__config__.parallel_info() == torchs_own
            assert dict(os.environ) == environment
    finally:
        torch.set_num_threads(before)


def test_several_at_once_are_taken_in_order_when_all_before_were_answered(tmp_path):
    seen = []

    def tasks():
        for index, task in enumerate(TEN):
            assert len(seen) == index // 3 * 3
            yield task

    for item in InProcess().run(Together(tmp_path), tasks()):
        seen.append(item)
    assert [Task(item.coalition, item.replicate, item.purpose) for item in seen] == TEN
    assert [item.values[0].value for item in seen] == [place / 7 for place in range(10)]
    assert [len(batch) for batch in batches(tmp_path)] == [3, 3, 3, 1]


def test_what_is_to_be_had_now_does_not_wait_for_more(tmp_path):
    list(InProcess().run(Together(tmp_path), [*TEN[:2], None, *TEN[2:6]]))
    assert batches(tmp_path) == [["0000", "0001"], ["0010", "0011", "0100"], ["0101"]]


@pytest.mark.parametrize(
    ("way", "failed", "message"),
    [
        ("raises", {1, 2, 3}, "the GPU is on fire"),
        ("another", {1}, "when asked for"),
        ("too few", {1, 2, 3}, "not enough"),
        ("too many", {3}, "too many"),
    ],
)
def test_of_several_those_that_are_not_answered_properly_fail(way, failed, message):
    results = list(InProcess().run(Wayward(way), TEN[:4]))
    assert [item.coalition for item in results] == ["0000", "0001", "0010", "0011"]
    assert {place for place, item in enumerate(results) if item.status == "failed"} == failed
    assert all(message in results[place].error for place in failed)
    assert {results[place].values for place in failed} == {()}
    rest = [place for place in range(4) if place not in failed]
    assert values(results[place] for place in rest) == values(InProcess().run(Toy(), [TEN[place] for place in rest]))


def test_a_trouble_among_several_costs_no_try_and_those_unanswered_are_repeated_alone(tmp_path):
    """Memory runs out over the second of three."""
    tasks = [Task(coalition, 0, "estimate") for coalition in ("1000", "0011", "0101", "1001", "1010")]
    with pytest.warns(DiffcreditWarning, match=r"^out of memory: workers are given 1 instead of 3 tasks at once"):
        results = list(InProcess(retries=0).run(TroubledTogether(tmp_path, times=1), tasks))
    assert values(results) == values(InProcess().run(Toy(), tasks))
    with pytest.warns(DiffcreditWarning, match="1 instead of 3"):
        results = list(InProcess(retries=1).run(TroubledTogether(tmp_path, times=9), tasks))
    (failed,) = [item for item in results if item.status == "failed"]
    assert failed.coalition == "0011"
    assert failed.error.startswith("given up at try 2: ")
    assert len(results) == 5


@pytest.mark.parametrize(
    ("room", "halves", "sizes"),
    [(1, ["2 instead of 5", "1 instead of 2"], [5, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1])],
)
def test_more_than_memory_holds_are_halved(tmp_path, room, halves, sizes):
    with pytest.warns(DiffcreditWarning) as warned:
        results = list(InProcess(retries=0).run(Together(tmp_path, 5, room), TEN))
    assert values(results) == values(InProcess().run(Toy(), TEN))
    assert [str(each.message) for each in warned] == [
        f"out of memory: workers are given {half} tasks at once from now on" for half in halves
    ]
    assert [len(batch) for batch in batches(tmp_path)] == sizes


def test_closing_the_run_leaves_the_rest_of_a_batch(tmp_path):
    run = InProcess().run(Closed(tmp_path), TEN)
    next(run)
    run.close()
    assert {file.name for file in tmp_path.iterdir()} == {"0000", "closed"}


def test_the_next_tasks_are_given_before_the_last_are_answered(tmp_path):
    seen, known = [], []

    def tasks():
        for task in TEN:
            known.append(len(seen))
            yield task

    for item in InProcess().run(Ahead(tmp_path), tasks()):
        seen.append(item.coalition)
    assert seen == [task.coalition for task in TEN]
    assert batches(tmp_path) == [seen[:3], seen[3:6], seen[6:9], seen[9:]]
    assert known == [0, 0, 0, 2, 2, 2, 5, 5, 5, 8]  # one was still owed each time


def test_what_memory_held_before_is_not_repeated(tmp_path):
    class Shrinking(Ahead):
        def evaluate(self, tasks):
            (self.folder / f"{len(batches(self.folder)):020d}").write_text(" ".join(each.coalition for each in tasks))
            if len(batches(self.folder)) == 2:
                raise OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
            return iter([self.one(task) for task in tasks])

    with pytest.warns(DiffcreditWarning, match="given 1 instead of 3 tasks at once"):
        results = list(InProcess().run(Shrinking(tmp_path), TEN))
    assert sorted(item.coalition for item in results) == [task.coalition for task in TEN]
    first, second, *repeated = batches(tmp_path)
    assert (first, second) == ([task.coalition for task in TEN[:3]], [task.coalition for task in TEN[3:6]])
    assert {name for some in repeated for name in some} == {task.coalition for task in TEN[3:]}
