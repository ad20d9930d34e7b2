import os
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_evaluators import CannotBuild, Raising, Threads, Toy, Troubled

from diffcredit.errors import UserError
from diffcredit.execution import InProcess, Task, in_process

TASKS = [Task(f"{i:02b}", replicate, "estimate") for i in range(4) for replicate in range(2)]


def test_one_evaluation_for_each_task_in_order():
    results = list(InProcess().run(Toy(), TASKS))
    assert [(item.coalition, item.replicate, item.purpose) for item in results] == [
        (task.coalition, task.replicate, task.purpose) for task in TASKS
    ]
    assert results[7].values[0].value == 3 / 7 + 1


def test_what_the_evaluator_raises_is_a_failed_evaluation():
    good, twice, other, raised = InProcess().run(Raising(), TASKS[::2])
    assert good.status == "done"
    assert [item.status for item in (twice, other, raised)] == ["failed"] * 3
    assert "the GPU is on fire" in raised.error
    assert "Traceback" in raised.error
    assert "when asked for" in other.error
    assert (raised.coalition, raised.purpose, raised.values) == ("11", "estimate", ())
    assert raised.versions["numpy"] == np.__version__


def test_tasks_may_depend_on_results():
    seen = []

    def tasks():
        for index in range(4):
            assert len(seen) == index
            yield Task(f"{index:02b}", 0, "estimate")

    for item in InProcess().run(Toy(), tasks()):
        seen.append(item)
    assert len(seen) == 4


def test_none_among_the_tasks_says_that_there_may_be_one_soon(monkeypatch):
    monkeypatch.setattr(in_process, "ASK_AGAIN", 0.0)
    results = list(InProcess().run(Toy(), [None, TASKS[0], None, None, TASKS[3], None]))
    assert [(item.coalition, item.replicate) for item in results] == [("00", 0), ("01", 1)]


def test_builds_no_evaluator_for_no_task(tmp_path: Path):
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


def test_out_of_memory_is_tried_again_and_an_ordinary_error_is_not(tmp_path):
    tasks = [Task(coalition, 0, "estimate") for coalition in ("0011", "0100")]
    results = list(InProcess(retries=1).run(Troubled(tmp_path, times=1), tasks))
    assert [(item.status, item.values) for item in results] == [
        (item.status, item.values) for item in InProcess().run(Toy(), tasks)
    ]
    (failed,) = InProcess(retries=0).run(Troubled(tmp_path, times=2), tasks[:1])
    assert failed.error.startswith("given up at try 1: Traceback")
    assert failed.error.splitlines()[-1].endswith("Tried to allocate 20.00 GiB.")


def test_refuses_no_threads():
    with pytest.raises(UserError, match="threads: 0"):
        InProcess(threads=0)
