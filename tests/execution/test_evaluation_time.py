"""Against a simulation of a worker: models made at once, their images in turn, measured in another thread."""

import dataclasses

import numpy as np
import pytest

from diffcredit.execution.evaluation_time import EvaluationTime
from diffcredit.execution.tasks import Task, failed_evaluation


def simulated(training: float, sampling: float, measuring: float, at_once: int, count: int) -> float:
    """When one worker is done with ``count`` evaluations; only those made together overlap."""
    now = 0.0
    for first in range(0, count, at_once):
        now += at_once * training  # places that nobody takes are trained too
        measured = now
        for _ in range(first, min(first + at_once, count)):
            now += sampling
            measured = max(measured, now) + measuring
        now = measured
    return now


@pytest.mark.parametrize("at_once", [1, 2, 16])
@pytest.mark.parametrize(("sampling", "measuring"), [(0.5, 1.8), (3.0, 0.1), (1.0, 1.0)])
def test_full_fleets_are_foreseen_exactly(at_once, sampling, measuring):
    time = EvaluationTime(0.3, sampling, measuring, at_once)
    assert time.of_all(32, 1) == pytest.approx(simulated(0.3, sampling, measuring, at_once, 32))
    assert time.seconds == pytest.approx(simulated(0.3, sampling, measuring, at_once, 32) / 32)


def test_on_the_cpu_parts_add_up_and_in_fleets_the_longer_one_counts():
    assert EvaluationTime(2, 3, 5).seconds == 10
    assert EvaluationTime(2, 3, 5, 1000).seconds == pytest.approx(7, rel=1e-3)
    assert EvaluationTime(2, 5, 3, 1000).seconds == pytest.approx(7, rel=1e-3)


def test_places_in_a_fleet_that_nobody_takes_cost_as_much():
    time = EvaluationTime(1.0, 0.01, 0.01, 16)
    assert time.of_all(36, 1) == pytest.approx(simulated(1.0, 0.01, 0.01, 16, 36), rel=0.01)
    assert time.of_all(36, 1) > 1.3 * 36 * time.seconds
    assert time.of_all(0, 1) == 0


def test_workers_share_them():
    time = EvaluationTime(1.0, 0.5, 0.25)
    assert time.of_all(10, 5) == pytest.approx(2 * 1.75)
    assert EvaluationTime(1.0, 0.0, 0.0, 4).of_all(16, 2) == pytest.approx(8)


def recorded(training, sampling, measuring, numerics=None):
    like = failed_evaluation(Task("110", 0, "estimate"), "", "worker", "")
    seconds = {"training": training, "sampling": sampling, "measuring": measuring}
    return dataclasses.replace(like, status="done", error=None, seconds=seconds, numerics=numerics or {})


def test_the_ledgers_evaluations_are_averaged():
    alone = EvaluationTime.of([recorded(1.0, 2.0, 3.0), recorded(3.0, 2.0, 5.0, {"training": {}})])
    assert alone == EvaluationTime(2.0, 2.0, 4.0)
    assert alone.seconds == np.mean([6.0, 10.0])
    in_fleet = recorded(1.0, 2.0, 3.0, {"training": {"path": "graph", "fleet": 8}})
    assert EvaluationTime.of([in_fleet, recorded(1.0, 2.0, 3.0)]).at_once == 8
