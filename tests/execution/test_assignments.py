from diffcredit.execution import Task
from diffcredit.execution.assignments import Assignment, Assignments, Loss

FIRST, SECOND = Task("01", 0, "estimate"), Task("10", 3, "truth")


def loss(how: str) -> Loss:
    return Loss("node:1", how, f"the worker node:1 was {how}")


def test_what_is_repeated_comes_before_what_is_new():
    todo = Assignments(iter([FIRST, None, SECOND]))
    first = todo.next()
    assert first.task == FIRST
    assert todo.next() is None  # now, though not for ever
    assert todo.left
    todo.repeat(first)
    assert todo.next() is first
    assert todo.next().task == SECOND
    assert todo.left  # as far as can be told
    assert todo.next() is None
    assert not todo.left
    todo.repeat(first)
    assert todo.left
    assert todo.next() is first
    assert not todo.left


def test_nothing_is_taken_before_it_is_asked_for():
    taken = []
    todo = Assignments(taken.append(task) or task for task in (FIRST, SECOND))
    assert not taken
    todo.next()
    assert taken == [FIRST]


def test_a_task_fails_when_its_retries_are_used_up():
    assignment = Assignment(SECOND, started="2025-01-31T12:00:00.000+00:00")
    assert assignment.lost(loss("lost"), retries=2) is None
    assert assignment.lost(loss("timed out"), retries=2) is None
    failed = assignment.lost(loss("out of memory"), retries=2)
    assert (failed.coalition, failed.replicate, failed.purpose, failed.status) == ("10", 3, "truth", "failed")
    assert failed.error == "given up at try 3: the worker node:1 was out of memory"
    assert (failed.worker, failed.started) == ("node:1", assignment.started)
    assert Assignment(SECOND).lost(loss("lost"), retries=0).status == "failed"


def test_the_second_that_its_device_does_not_serve_is_one_too_many():
    assignment = Assignment(FIRST)
    ways = [("out of memory", False), ("lost", False), ("GPU error", True), ("timed out", False), ("GPU error", False)]
    for how, crowded in ways:
        assignment.lost(loss(how), retries=9)
        assert assignment.crowded_out() is crowded
