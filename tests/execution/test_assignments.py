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


def failure(kind: str) -> WorkerFailure:
    return WorkerFailure("node:1", kind, f"the worker node:1 was {kind}")


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


def test_the_second_that_its_device_does_not_serve_is_one_too_many():
    assignment = Assignment(FIRST)
    ways = [("out of memory", False), ("lost", False), ("GPU error", True), ("timed out", False), ("GPU error", False)]
    for how, crowded in ways:
        assignment.failed(failure(how), retries=9)
        assert assignment.device_failed_twice() is crowded


def taken(todo: TaskQueue, most: int) -> TaskBatch:
    batch = TaskBatch("node:1", todo.next())
    batch.fill(todo, most)
    return batch


def test_none_that_is_given_alone_joins_others():
    todo = TaskQueue([FIRST, SECOND, THIRD])
    lonely = taken(todo, 1)
    filled = TaskBatch("node:2", todo.next())
    lonely.failed(failure("timed out"), 2.0, todo, retries=1)
    filled.fill(todo, 3)
    assert filled.tasks == (SECOND, THIRD)
    assert todo.next().task == FIRST


def test_what_is_put_back_may_be_given_with_others():
    todo = TaskQueue([FIRST, SECOND])
    taken(todo, 1).put_back(failure("lost"), 2.0, todo)
    assert taken(todo, 3).tasks == (FIRST, SECOND)


def test_a_batch_is_representative_if_one_of_it_is():
    for tasks, expected in (((ENDPOINT,), False), ((ENDPOINT, FIRST), True), ((FIRST, ENDPOINT), True)):
        batch = taken(TaskQueue(tasks), 2)
        for task in tasks:
            batch.answered(done(task, 0.0), 1.0)
        assert batch.representative is expected
        assert batch.unanswered == []


def test_a_limit_is_halved_by_memory_alone_and_told_once():
    limit = BatchLimit()
    seven = taken(TaskQueue(Task("01", replicate, "pilot") for replicate in range(7)), 9)
    limit.lower(failure("GPU error"), seven)
    assert (limit.of(7), limit.of(1)) == (7, 1)
    with pytest.warns(DiffcreditWarning, match="3 instead of 7"):
        limit.lower(failure("out of memory"), seven)
    limit.lower(failure("out of memory"), seven)  # of another worker, given before
    limit.lower(failure("out of memory"), taken(TaskQueue([FIRST]), 9))
    assert (limit.of(7), limit.of(3), limit.of(2)) == (3, 3, 2)
