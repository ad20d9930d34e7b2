import pytest
from toy_evaluators import done

from diffcredit.errors import DiffcreditWarning
from diffcredit.execution import Task
from diffcredit.execution.assignments import Assignment, BatchLimit, TaskBatch, TaskQueue, WorkerFailure

FIRST, SECOND, THIRD, ENDPOINT = (
    Task("01", 0, "estimate"),
    Task("10", 3, "truth"),
    Task("01", 1, "pilot"),
    Task("11", 0, "endpoint"),
)


def loss(how: str) -> WorkerFailure:
    return WorkerFailure("node:1", how, f"the worker node:1 was {how}")


def test_what_is_repeated_comes_before_what_is_new():
    todo = TaskQueue(iter([FIRST, None, SECOND]))
    first = todo.next()
    assert first.task == FIRST
    assert todo.next() is None  # now, though not for ever
    assert todo.open
    todo.put_back(first)
    assert todo.next() is first
    assert todo.next().task == SECOND
    assert todo.open  # as far as can be told
    assert todo.next() is None
    assert not todo.open
    todo.put_back(first)
    assert todo.open
    assert todo.next() is first
    assert not todo.open


def test_nothing_is_taken_before_it_is_asked_for():
    taken = []
    todo = TaskQueue(taken.append(task) or task for task in (FIRST, SECOND))
    assert not taken
    todo.next()
    assert taken == [FIRST]


def test_a_task_fails_when_its_retries_are_used_up():
    assignment = Assignment(SECOND, started="2025-01-31T12:00:00.000+00:00")
    assert assignment.failed(loss("lost"), retries=2) is None
    assert assignment.failed(loss("timed out"), retries=2) is None
    failed = assignment.failed(loss("out of memory"), retries=2)
    assert (failed.coalition, failed.replicate, failed.purpose, failed.status) == ("10", 3, "truth", "failed")
    assert failed.error == "given up at try 3: the worker node:1 was out of memory"
    assert (failed.worker, failed.started) == ("node:1", assignment.started)
    assert Assignment(SECOND).failed(loss("lost"), retries=0).status == "failed"


def test_the_second_that_its_device_does_not_serve_is_one_too_many():
    assignment = Assignment(FIRST)
    ways = [("out of memory", False), ("lost", False), ("GPU error", True), ("timed out", False), ("GPU error", False)]
    for how, crowded in ways:
        assignment.failed(loss(how), retries=9)
        assert assignment.device_failed_twice() is crowded


def taken(todo: TaskQueue, most: int) -> TaskBatch:
    bundle = TaskBatch("node:1", todo.next())
    bundle.fill(todo, most)
    return bundle


def test_a_bundle_has_what_is_to_be_had_now_up_to_so_many():
    todo = TaskQueue([FIRST, None, SECOND, THIRD, ENDPOINT])
    assert [taken(todo, 2).tasks for _ in range(3)] == [(FIRST,), (SECOND, THIRD), (ENDPOINT,)]
    assert taken(TaskQueue([FIRST, SECOND]), 1).tasks == (FIRST,)


def test_what_was_lost_among_others_is_repeated_alone_and_no_try_is_counted():
    todo = TaskQueue([FIRST, SECOND, THIRD, ENDPOINT])
    bundle = taken(todo, 3)
    bundle.answered(done(FIRST, 0.0), 1.0)
    assert bundle.failed(loss("lost"), 2.0, todo, retries=0) == []
    assert not bundle.device_failed_twice()
    again = taken(todo, 3)
    assert again.tasks == (SECOND,)
    (failed,) = again.failed(loss("lost"), 2.0, todo, retries=0)
    assert failed.error.startswith("given up at try 1: ")
    assert taken(todo, 3).tasks == (THIRD,)
    assert taken(todo, 3).tasks == (ENDPOINT,)
    assert not todo.open


def test_none_that_is_given_alone_joins_others():
    todo = TaskQueue([FIRST, SECOND, THIRD])
    lonely = taken(todo, 1)
    filled = TaskBatch("node:2", todo.next())
    lonely.failed(loss("timed out"), 2.0, todo, retries=1)
    filled.fill(todo, 3)
    assert filled.tasks == (SECOND, THIRD)
    assert todo.next().task == FIRST


def test_what_is_put_back_may_be_given_with_others():
    todo = TaskQueue([FIRST, SECOND])
    taken(todo, 1).put_back(loss("lost"), 2.0, todo)
    assert taken(todo, 3).tasks == (FIRST, SECOND)


def test_a_bundle_is_representative_if_one_of_it_is():
    for tasks, expected in (((ENDPOINT,), False), ((ENDPOINT, FIRST), True), ((FIRST, ENDPOINT), True)):
        bundle = taken(TaskQueue(tasks), 2)
        for task in tasks:
            bundle.answered(done(task, 0.0), 1.0)
        assert bundle.representative is expected
        assert bundle.unanswered == []


def test_a_portion_is_halved_by_memory_alone_and_told_once():
    portion = BatchLimit()
    seven = taken(TaskQueue(Task("01", replicate, "pilot") for replicate in range(7)), 9)
    portion.lower(loss("GPU error"), seven)
    assert (portion.of(7), portion.of(1)) == (7, 1)
    with pytest.warns(DiffcreditWarning, match="3 instead of 7"):
        portion.lower(loss("out of memory"), seven)
    portion.lower(loss("out of memory"), seven)  # of another worker, given before
    portion.lower(loss("out of memory"), taken(TaskQueue([FIRST]), 9))
    assert (portion.of(7), portion.of(3), portion.of(2)) == (3, 3, 2)
