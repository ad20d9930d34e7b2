"""What ``diffcredit plan`` predicts from timings, which are made up here."""

import dataclasses

import pytest

from diffcredit.cli.plan import print_plan, stages
from diffcredit.execution.timing.calibration import Timing
from diffcredit.execution.timing.evaluation import EvaluationTime
from diffcredit.execution.timing.measuring import MeasuringTime
from diffcredit.study.plan import evaluation_time, time_evaluation
from diffcredit.study.study import Study
from tiny_study import files_below, run_here, write_small, write_study

COSTS = {"once": 0.5, "together": 0.125}  # seconds a step


@pytest.fixture
def speeds(monkeypatch):
    """Made-up times: of training by steps, of images, and of measuring; on a GPU that takes fleets of eight."""
    asked = []

    def time_training(model, settings, at_once=None):
        asked.append((settings.steps, at_once))
        return Timing(settings.steps * COSTS["once" if at_once is None else "together"], compiling=20.0)

    def time_sampling(model, sampling, *, often=False):
        asked.append(("images", often))
        return Timing(3.0 if often else 4.0, compiling=1.0)

    monkeypatch.setattr("diffcredit.study.plan.time_training", time_training)
    monkeypatch.setattr("diffcredit.study.plan.time_sampling", time_sampling)
    monkeypatch.setattr("diffcredit.study.plan.time_measuring", lambda *_: MeasuringTime(1.0, 5.0, {}))
    monkeypatch.setattr("diffcredit.study.plan.fleet_size", lambda model, settings: 8)
    return asked


def test_each_stage_by_the_way_it_goes(speeds, tmp_path):
    file = write_study(tmp_path, {"model.train.steps": 300, "retraining.recover_steps": 50, "retraining.steps": 7})
    study = Study.load(file)
    found = study.plan(1)
    assert set(speeds) == {(300, None), (50, None), (7, 8), ("images", False), ("images", True)}
    assert len(speeds) == 5
    assert found.base.seconds == pytest.approx(300 * 0.5 + 4)
    # once, as one training, and not at a fleet's pace
    assert found.preparation.seconds == pytest.approx(50 * 0.5)
    # 18 in fleets of 8; when the first images are there they are measured one after the other, which takes longest
    assert found.evaluations.seconds == pytest.approx(8 * 7 * 0.125 + 3 + 18 * 6)
    (*_, (what, _)) = stages(study, found)
    assert "6 s each (7 steps, 4 images, 6 s of measuring, 1 s of it for features), 1 at a time" in what
    assert found.compiling == pytest.approx(3 * 20 + 2)


@pytest.mark.parametrize(
    ("options", "at_once", "each"),
    [
        ({"method": "fine_tune", "steps": 7}, 8, 7 * 0.125 + 6 + 3 / 8),
        ({"method": "from_scratch", "steps": 7}, 8, 7 * 0.125 + 6 + 3 / 8),
        # one by one: what is measured waits for nobody
        ({"method": "gradient_ascent", "steps": 7}, None, 7 * 0.5 + 6 + 3),
        ({"method": "soup", "steps": 7}, ..., 6 + 3),
    ],
)
def test_who_trains_together(speeds, tmp_path, options, at_once, each):
    study = Study.load(write_study(tmp_path, {"retraining": options}))
    timed = time_evaluation(study.recipe, study.recipe.rehearse(study.prepared.start()))
    assert [found for found in speeds if found[0] == 7] == ([] if at_once is ... else [(7, at_once)])
    assert timed.time.each(2) == pytest.approx(each)


def test_several_workers_wait_for_what_they_measure(speeds, tmp_path):
    changes = {"model.train.steps": 300, "retraining.recover_steps": 50, "retraining.steps": 7}
    study = Study.load(write_study(tmp_path, changes))
    found = study.plan(2)
    assert found.evaluations.seconds == pytest.approx(2 * 8 * 7 * 0.125 + 18 * (6 + 3 / 8) / 2)
    (*_, (what, _)) = stages(study, found)
    assert "7 s each" in what


def test_what_is_done_is_not_timed(speeds, finished):
    found = Study.load(finished).plan(1)
    assert [stage.done for stage in (found.base, found.preparation, found.evaluations)] == [True] * 3
    assert found.seconds_left == 0
    assert set(speeds) == {("images", True), (1, 8)}


def test_the_ledger_tells_first(speeds, tmp_path):
    file = write_small(tmp_path, {"retraining": {"method": "fine_tune", "steps": 3}, "stop.evaluations": 3})
    study = Study.load(file)
    assert evaluation_time(study.recipe) == EvaluationTime(3 * 0.125, 3.0, 6.0, 8)
    run_here(file)
    del speeds[:]
    done = [each.seconds for each in study.evaluations(status="done") if "1" in each.coalition]
    time = evaluation_time(study.recipe)
    assert time.each(1) == pytest.approx(sum(sum(each.values()) for each in done) / len(done))
    assert not speeds


@pytest.mark.parametrize(("seconds", "told"), [(4.0, False), (75.0, True)])
@pytest.mark.usefixtures("speeds")
def test_compiling_that_took_long_has_a_line(tmp_path, capsys, seconds, told):
    study = Study.load(write_study(tmp_path))
    print_plan(study, dataclasses.replace(study.plan(1), compiling=seconds))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if "compiling" in line]
    assert lines == (["compiling, just done; a run on this machine reuses it 75 s"] if told else [])


FUSSY = """
def fussy(images):
    raise ValueError("no face")
"""


def test_a_property_that_cannot_be_timed_is_told_in_a_line(diffcredit, tmp_path):
    (tmp_path / "fussy_property.py").write_text(FUSSY)
    file = write_study(tmp_path, {"properties": ["fussy_property:fussy", "colourfulness"]})
    before = files_below(tmp_path)
    code, out, err = diffcredit("plan", file)
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if "fussy" in line] == [
        "Not timed: fussy, which cannot be measured on random images: ValueError: no face"
    ]
    assert {path for path in files_below(tmp_path) if "__pycache__" not in path} == before
