"""Against a simulation of a worker: models made at once, their images in turn, measured in another thread."""

import dataclasses

import numpy as np
import pytest

from diffcredit.execution.tasks import Task, failed_evaluation
from diffcredit.execution.timing.calibration import EvaluationTime


def simulated(training: float, sampling: float, measuring: float, at_once: int, count: int, *, ahead: bool) -> float:
    """When one worker is done with ``count`` evaluations; those made together overlap, and with ``ahead`` the next
    fleet does too, unless more than one fleet's images are unmeasured."""
    now = measured = 0.0
    ends: list[float] = []
    for first in range(0, count, at_once):
        now += at_once * training  # places that nobody takes are trained too
        for _ in range(first, min(first + at_once, count)):
            now += sampling
            measured = max(measured, now) + measuring
            ends.append(measured)
            if len(ends) > at_once:
                now = max(now, ends[-1 - at_once])
        if not ahead:
            now = measured
    return max(now, measured)


PARTS = [(0.5, 1.8), (3.0, 0.1), (1.0, 1.0), (0.2, 0.9)]


@pytest.mark.parametrize("at_once", [1, 2, 16])
@pytest.mark.parametrize(("sampling", "measuring"), PARTS)
def test_full_fleets_of_several_workers_are_foreseen_exactly(at_once, sampling, measuring):
    time, one = EvaluationTime(0.3, sampling, measuring, at_once), (0.3, sampling, measuring, at_once)
    assert time.of_all(64, 2) == pytest.approx(simulated(*one, 32, ahead=False))
    assert time.each(2) == pytest.approx(simulated(*one, 32, ahead=False) / 32)


@pytest.mark.parametrize("training", [0.3, 1.2])
@pytest.mark.parametrize("at_once", [2, 16])
@pytest.mark.parametrize(("sampling", "measuring"), PARTS)
def test_one_worker_measures_a_fleet_while_it_makes_the_next(training, at_once, sampling, measuring):
    time, one = EvaluationTime(training, sampling, measuring, at_once), (training, sampling, measuring, at_once)
    assert time.of_all(32, 1) == pytest.approx(simulated(*one, 32, ahead=True), rel=0.03)
    assert time.of_all(32, 1) <= simulated(*one, 32, ahead=False) + 1e-9
    assert time.each(1) == pytest.approx(simulated(*one, 3200, ahead=True) / 3200, rel=0.03)


def test_on_the_cpu_parts_add_up_and_in_fleets_the_longer_one_counts():
    assert EvaluationTime(1.0, 0.5, 0.25).of_all(10, 5) == pytest.approx(2 * 1.75)
    assert EvaluationTime(2, 3, 5).each(1) == EvaluationTime(2, 3, 5).each(2) == 10
    assert EvaluationTime(2, 3, 5, 1000).each(2) == pytest.approx(7, rel=1e-3)
    assert EvaluationTime(2, 5, 3, 1000).each(2) == pytest.approx(7, rel=1e-3)
    assert EvaluationTime(2, 3, 4, 1000).each(1) == 5
    assert EvaluationTime(2, 3, 6, 1000).each(1) == 6


@pytest.mark.parametrize("workers", [1, 2])
def test_places_in_a_fleet_that_nobody_takes_cost_as_much(workers):
    time = EvaluationTime(1.0, 0.01, 0.01, 16)
    expected = simulated(1.0, 0.01, 0.01, 16, 36, ahead=False)
    assert time.of_all(36 * workers, workers) == pytest.approx(expected, rel=0.01)
    assert time.of_all(36, 1) > 1.3 * 36 * time.each(1)
    assert time.of_all(0, workers) == 0


def recorded(training, sampling, measuring, numerics=None):
    like = failed_evaluation(Task("110", 0, "estimate"), "", "worker", "")
    seconds = {"training": training, "sampling": sampling, "measuring": measuring}
    return dataclasses.replace(like, status="done", error=None, seconds=seconds, numerics=numerics or {})


def test_the_ledgers_evaluations_are_averaged():
    alone = EvaluationTime.of([recorded(1.0, 2.0, 3.0), recorded(3.0, 2.0, 5.0, {"training": {}})])
    assert alone == EvaluationTime(2.0, 2.0, 4.0)
    assert alone.each(1) == np.mean([6.0, 10.0])
    in_fleet = recorded(1.0, 2.0, 3.0, {"training": {"path": "graph", "fleet": 8}})
    assert EvaluationTime.of([in_fleet, recorded(1.0, 2.0, 3.0)]).at_once == 8
