"""``diffcredit plan``: the cost of a study from timings, which are mostly made up here, and the split of its budget."""

import dataclasses
import os
import re

import pytest

from diffcredit.cli.plan import print_plan, stages
from diffcredit.execution.timing.calibration import EvaluationTime
from diffcredit.study.plan import evaluation_time, expected_total, time_evaluation
from diffcredit.study.schedule import Total
from diffcredit.study.study import Study
from diffusion import tiny_pipelines
from tiny_study import files_below, run_here, write_small, write_study

from .conftest import with_records

CHANGES = {"model.train.steps": 300, "retraining.recover_steps": 50, "retraining.steps": 7}
FUSSY = """
def fussy(images):
    raise ValueError("no face")
"""


def test_nothing_is_trained_and_nothing_left(diffcredit, tmp_path, monkeypatch):
    """Timed in truth, with a property that cannot be."""
    (tmp_path / "fussy_property.py").write_text(FUSSY)
    changes = {
        "properties": ["fussy_property:fussy", "colourfulness"],
        "retraining": {"method": "sparsified", "recover_steps": 2, "steps": 1},
    }
    file = write_small(tmp_path, changes)
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    before = files_below(tmp_path)
    out = diffcredit.printed("plan", file, "--workers", 2)
    lines = [line.strip() for line in out.splitlines() if not line.startswith("timing a few steps: ")]
    assert re.fullmatch(
        r"Memory on cpu: about [\d.]+ MiB at most, by a step of \w+, \d+ images at once; [\d.,]+ .iB are available\.",
        lines.pop(0),
    )
    assert [lines[place].partition(": ")[0] for place in (1, 2, 3, 4)] == [
        *("start", "base model", "preparing the retraining", "pilot (diffcredit pilot)")
    ]
    assert lines[2].startswith("base model: 2 steps, then 4 images")
    assert lines[3].startswith("preparing the retraining: 2 steps")
    assert lines[5].startswith("10 evaluations of 10, ")
    assert "(1 steps, 4 images), 2 at a time" in lines[5]
    assert re.match(r"total left +\d+ s to \d+ s", lines[6])
    assert lines[7] == "Not timed: fussy, which cannot be measured on random images: ValueError: no face"
    assert "Splitting the budget: shown after 40 evaluations; there are 0." in out
    assert {path for path in files_below(tmp_path) if "__pycache__" not in path} == before


def test_each_stage_by_the_way_it_goes(speeds, tmp_path):
    study = Study.load(write_study(tmp_path, CHANGES))
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
    # several workers wait for what they measure
    found = study.plan(2)
    assert found.evaluations.seconds == pytest.approx(2 * 8 * 7 * 0.125 + 18 * (6 + 3 / 8) / 2)
    (*_, (what, _)) = stages(study, found)
    assert "7 s each" in what


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


@pytest.mark.parametrize(
    ("rule", "evaluations"),
    [
        ({"hours": 1}, 30),
        ({"hours": 1 / 60}, 12),  # 10 s each, two at a time
        ({"money": {"amount": 12 / 360, "per_hour": 1}}, 12),
    ],
)
def test_hours_and_money_become_evaluations(tmp_path, rule, evaluations):
    stop = {"any": [{"evaluations": 30}, {"correlation": 0.9}, rule]}
    schedule = Study.load(write_small(tmp_path, {"stop": stop})).schedule()
    assert expected_total(schedule, each=10.0, at_a_time=2) == Total(2 + evaluations, certain=False)


@pytest.mark.usefixtures("speeds")
def test_a_busy_machine_widens_the_range_and_a_pretrained_model_is_not_trained(diffcredit, tmp_path, monkeypatch):
    tiny_pipelines.unet(sample_size=16).save_pretrained(tmp_path / "my-unet")
    file = write_small(tmp_path, {"model.preset": None, "model.pretrained": "my-unet"})
    cores, found = len(os.sched_getaffinity(0)), []
    for load in (0.0, cores / 2, 9.0 * cores):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        found.append(Study.load(file).plan(1))
    for plan, free in zip(found, (1.0, 0.5, 0.25), strict=True):
        assert plan.range_left == pytest.approx((0.8 * free * plan.seconds_left, 1.4 * plan.seconds_left))
        parts = (plan.startup, plan.base, plan.pilot, plan.evaluations)
        assert plan.seconds_left == pytest.approx(sum(each.seconds for each in parts))
        assert plan.base.seconds == 4.0  # its images alone
    assert [bool(plan.busy) for plan in found] == [False, True, True]
    out = diffcredit.printed("plan", file, "--workers", 1)
    assert f"This machine is busy: a load of {9.0 * cores:.1f} on {cores} cores" in out
    assert "base model: comes trained, then 4 images" in out


def test_what_is_done_is_not_timed(diffcredit, speeds, finished):
    before = files_below(finished)
    out = diffcredit.printed("plan", finished, "--workers", 1)
    assert len(re.findall(r" done *$", out, re.MULTILINE)) == 4  # all but the pilot, which comes too late
    assert set(speeds) == {("images", True), (1, 8)}
    assert files_below(finished) == before


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


@pytest.mark.usefixtures("speeds")
def test_compiling_that_took_long_has_a_line(tmp_path, capsys):
    study = Study.load(write_study(tmp_path))
    planned = study.plan(1)
    for seconds, expected in ((4.0, []), (75.0, ["compiling, just done; a run on this machine reuses it 75 s"])):
        print_plan(study, dataclasses.replace(planned, compiling=seconds))
        lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if "compiling" in line]
        assert lines == expected


@pytest.mark.usefixtures("speeds")
def test_what_surrogates_cost(diffcredit, tmp_path, monkeypatch):
    monkeypatch.setattr("diffcredit.cli.console.console._width", 160)
    file = write_small(tmp_path, {"surrogates": ["pools", {"name": "soup", "coalitions": 9}]}, "ada bob cem dan")
    out = diffcredit("plan", file, "--workers", 1)[1]
    # soup: 9 for its own credits, everybody, and each of 10 evaluations; pools: 4
    assert "surrogates (pools, soup): 4 models of 1 steps, 24 × 4 images" in " ".join(out.split())
    assert not (tmp_path / "results").exists()


@pytest.mark.usefixtures("speeds")
def test_the_split_of_the_budget(diffcredit, recorded):
    out = diffcredit.printed("plan", recorded)
    table = {line.split()[0]: line.split() for line in out.splitlines() if " × " in line or "not known" in line}
    assert table["heldout_loss"][2:] == ["not", "known"]
    for name in ("colourfulness", "cluster_entropy"):
        assert table[name][4:7] == ["4", "×", "200"]
        assert table[name][8] == "×"
    # of a variance of 1 about the fit, 0.5² is the images', but for the first values, which are real
    assert 10 < float(table["cluster_entropy"][2]) < 40
    assert "sampling.images is part of the recipe" in out


@pytest.mark.usefixtures("speeds")
def test_noise_is_warned_of(diffcredit, finished):
    with_records(finished, 60, standard_error=100.0, scale=1e-6)  # images far noisier than the values
    out = diffcredit.printed("plan", finished)
    assert len(re.findall(r"4 × \d+ +not known", out)) == 2
    assert "share their initial noises" in out
    table = re.findall(r"^ (\w+) +(\S+) .*not known", out, re.MULTILINE)
    noisy = {name for name, ratio in table if float(ratio) < 0.1}
    assert noisy  # contributors make nothing of these values
    assert set(re.findall(r"^(\w+): signal/noise \S+ by 60 evaluations is under 0.1", out, re.MULTILINE)) == noisy
    ratios = dict(re.findall(r"^(\w+): signal/noise (\S+) by", out, re.MULTILINE))
    assert {name: ratios[name] for name, _ in table} == dict(table)  # table and sentences agree
    assert diffcredit("report", finished, warned=True)[0] == 0
    page = (finished / "results/report.html").read_text(encoding="utf-8")
    assert set(re.findall(r"(\w+): signal/noise \S+ by 60 evaluations is under 0.1", page)) == noisy
