"""``diffcredit validate``: what it evaluates, what it says and where that is kept."""

import gc
import pkgutil
import re
import shutil
from math import comb

import numpy as np
import pytest

from diffcredit.baselines import BASELINES, BaselineCredits
from diffcredit.baselines.study import StudyBaseline
from diffcredit.errors import UserError
from diffcredit.study.study import Study
from diffcredit.validation.data import PartWork, ValidationData
from diffcredit.validation.validate import kept_sections
from tiny_study import files_below, images_of, rows, write_study
from validated_study import NAMES, VALIDATION, additive, record, validated

GAMES = {"colourfulness": additive(noise=0.1), "heldout_loss": additive(noise=0.1, seed=1)}


@pytest.fixture(scope="module")
def _planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    data = ValidationData(Study.load(validated(folder)))
    record(data.study.recipe, data.design(data.study.recipe).tasks, GAMES, lower=["heldout_loss"])
    record(data.scratch, data.truth().tasks[:12], GAMES, lower=["heldout_loss"])
    return folder


@pytest.fixture
def planted(_planted, tmp_path, monkeypatch):
    """A study that was run, with 12 of 40 truth evaluations; whatever is evaluated is a game's value, none trained."""
    counted = BaselineCredits("counted", "", np.arange(8.0), {}, 1.0, {})
    found = [StudyBaseline("counted", "control", None, counted)]
    monkeypatch.setattr("diffcredit.validation.contenders.kept_baselines", lambda study: found)
    monkeypatch.setattr("diffcredit.validation.presentation.drawing.to_svg", lambda canvas, title: "<svg/>")
    monkeypatch.setattr("diffcredit.report.composing.write_results", lambda study, retrain: ())

    def evaluate(recipe, executor, tasks, what):
        record(recipe, PartWork(recipe, tasks, what).missing(), GAMES, lower=["heldout_loss"])
        return iter(())

    monkeypatch.setattr("diffcredit.validation.validate.evaluate_tasks", evaluate)
    monkeypatch.setattr("diffcredit.validation.parts.counterfactual._photographs", lambda *_: [])
    monkeypatch.setattr("diffcredit.cli.console.console._width", 160)
    return shutil.copytree(_planted, tmp_path / "study")


def line(out, words):
    return next(each for each in out.splitlines() if words in each).split()


def evaluations(folder, purpose):
    return rows(folder, f"SELECT count(*) FROM evaluations WHERE purpose = '{purpose}' AND status = 'done'")[0][0]


def test_the_plan_says_what_lacks_and_makes_none_of_it(diffcredit, planted):
    before = files_below(planted), evaluations(planted, "truth")
    out = diffcredit.printed("validate", planted, "--plan", "--part", "lds", "--workers", 1)
    assert line(out, "retraining from scratch: truth")[4:7] == ["28", "4", "s"]  # models, and what one took so far
    assert line(out, "leaving one out by sparsified")[5] == "8"
    assert line(out, "in all")[2] == "36"
    # what two parts evaluate is counted once
    _, out, _ = diffcredit("validate", planted, "--plan", "--part", "lds", "--part", "convergence", "--workers", 1)
    assert line(out, "in all")[2] == "36"
    assert out.count("retraining from scratch: truth") == 1
    assert (files_below(planted), evaluations(planted, "truth")) == before


@pytest.mark.parametrize("n", [5, 6])
def test_before_a_run_it_is_planned_with_baselines_and_no_more_coalitions_than_there_are(diffcredit, tmp_path, n):
    contributions = {"path": "images", "resolution": 16, "holdout": 0.5}
    validation = {**VALIDATION, "shares": [0.5, 0.2], "evaluations": 20}
    file = validated(tmp_path, {"contributions": contributions, "validation": validation}, NAMES[:n])
    before = files_below(tmp_path)
    out = " ".join(diffcredit.printed("validate", file, "--plan", "--workers", 1, warned=True).split())
    assert files_below(tmp_path) == before
    # of so many coalitions of one size half are retrained, and ten are needed
    assert f"share 0.2: left out: {n} contributors have {n} coalitions of that size" in out
    enough = comb(n, n // 2) // 2 >= 10
    assert ("left out: lds, convergence, budget: no share has the 10 coalitions" in out) is not enough
    assert ("share 0.5: 10 coalitions instead of 20: 6 contributors have 20 coalitions of that size" in out) is enough
    assert bool(re.search(r" 1\d baselines \d+ (s|min)", out)) is enough
    # removals leave everybody, all but one (of 10 and 20 %), all but two, or the top 60 %, with two seeds each
    most = 2 * (1 + n + sum(comb(n, size) for size in {n - 2, {5: 3, 6: 4}[n]}))
    found = re.search(r"retraining from scratch: counterfactual up to (\d+)", out)
    assert 2 * 5 <= int(found[1]) <= most


def test_the_rivals_to_come_are_foreseen_at_the_most(diffcredit, planted, monkeypatch):
    """Everybody, and four models each of the study's credits and of three random rankings, some of them the same; then
    at most four of leave-one-out and of each kind of baseline: all with two seeds."""
    asked = ("validate", planted, "--plan", "--part", "lds", "--part", "counterfactual", "--workers", 1)

    def models(out):
        up, to, count = line(out, "retraining from scratch: counterfactual")[4:7]
        assert (up, to) == ("up", "to")
        return int(count)

    known = models(diffcredit(*asked)[1])  # of one kind, control
    certain = known - 2 * 2 * 4
    assert 2 * 5 < certain <= 2 * (1 + 4 + 3 * 4)
    monkeypatch.setattr("diffcredit.validation.contenders.kept_baselines", lambda study: [])
    monkeypatch.setattr("diffcredit.validation.validate.possible_baselines", lambda study: [])
    out = diffcredit.printed(*asked)
    kinds = {pkgutil.resolve_name(reference).category for reference in BASELINES.values()} - {"floor"}
    assert models(out) == certain + 2 * 4 * (1 + len(kinds))
    assert line(out, "in all")[2:4] == ["up", "to"]


def test_evaluated_uses_what_is_there(diffcredit, planted):
    out = diffcredit.printed("validate", planted, "--evaluated", "--part", "lds", "--part", "fidelity")
    assert "Evaluations missing from the evidence, left out as asked" in out
    assert "orders 12 held-out coalitions" in out
    assert f"left out: {planted / 'study.yaml'}: fidelity: no evaluations of 'from_scratch' beside truth's yet" in (
        out.replace("\n", " ").replace("  ", " ")
    )
    assert evaluations(planted, "truth") == 12
    assert [each.part for each in kept_sections(Study.load(planted))] == ["lds"]


def test_scores_are_of_all_that_was_evaluated(diffcredit, planted, monkeypatch):
    """The plan of the counterfactual looks at the scores of the truth there is, which are not the last; images that
    cannot be made again leave the part."""

    def refuse(recipe, executor, tasks, what):
        raise UserError("the models that it starts from are lost")

    monkeypatch.setattr("diffcredit.validation.validate.keep_again", refuse)
    out = diffcredit.printed("validate", planted, "--part", "lds", "--part", "counterfactual", "--workers", 1)
    assert "orders 20 held-out coalitions" in out
    assert "What happens without the top contributors" in out
    assert "left out: the models that it starts from are lost" in out
    assert f"Files: {planted / 'results' / 'validation' / 'lds'}" in out
    assert evaluations(planted, "truth") > 40


def test_mistakes(diffcredit, planted):
    err = diffcredit.refused("validate", planted, "--part", "luck")
    assert "--part 'luck': accepted: lds, surrogates, counterfactual, fidelity, convergence, budget, runtime, " in err
    err = diffcredit.refused("validate", planted, "--property", "beauty")
    assert "--property 'beauty': accepted: colourfulness, heldout_loss" in err
    err = diffcredit.refused("validate", planted, "--evaluated", "--part", "fidelity")
    assert "fidelity: no evaluations of 'from_scratch' beside truth's yet" in " ".join(err.split())


def test_a_study_that_was_not_run(diffcredit, tmp_path):
    file = validated(tmp_path)
    for option in ("--evaluated", "--part=lds"):
        err = diffcredit.refused("validate", file, option)
        assert "nothing is evaluated yet; diffcredit run comes first" in " ".join(err.split())
    assert not (tmp_path / "results").exists()


def test_from_a_run_to_a_report(diffcredit, tmp_path, monkeypatch):
    """Models are trained: cut off by Ctrl-C, taken up, and found by the next."""
    images_of(tmp_path / "images", ["=1+1", "<b>ann", "c & d", "[red]eve", "f g", "hal"], each=2)
    changes = {
        "contributions": {"path": "images", "resolution": 16},
        "properties": [{"name": "colourfulness", "as": "a/<b>"}],
        "retraining": {"method": "fine_tune", "steps": 1},
        "stop": {"evaluations": 8},
        "validation": {"shares": [0.5], "coalitions": 10, "seeds": 1, "evaluations": 8},
    }
    write_study(tmp_path, changes)
    assert diffcredit("run", tmp_path, "--workers", 1, warned=True)[0] == 0
    assert diffcredit("baselines", tmp_path, "--method", "image_count", warned=True)[0] == 0

    def cut_off(evaluated, *, recorded):
        for _, _ in zip(evaluated, range(3), strict=False):
            pass
        raise KeyboardInterrupt

    parts = ["--part=lds", "--part=counterfactual"]
    with monkeypatch.context() as patched:
        patched.setattr("diffcredit.cli.validate.report_failures", cut_off)
        code, out, _ = diffcredit("validate", tmp_path, *parts, "--workers", 1, warned=True)
    assert code == 130
    gc.collect()  # the error holds on to the run that it cut off, and so to its claims, which end with a process
    assert "the same command goes on from there" in out
    ((begun,),) = rows(tmp_path, "SELECT count(*) FROM evaluations WHERE purpose IN ('truth', 'validation')")
    assert 3 <= begun < 10
    out = diffcredit.printed("validate", tmp_path, *parts, "--workers", 1, warned=True)
    assert "orders 10 held-out coalitions" in out
    recorded = rows(tmp_path, "SELECT count(*) FROM evaluations")
    files = files_below(tmp_path / "results" / "validation")
    assert {"lds/lds-scores.csv", "counterfactual/noises-1.png"} <= files
    page = (tmp_path / "results" / "report.html").read_text(encoding="utf-8")
    assert "Do the credits order models that were retrained without some contributors?" in page
    assert "<b>ann" not in page
    # images that are lost are made once more, and nothing else
    picture = tmp_path / "results" / "validation" / "counterfactual" / "noises-1.png"
    seen = picture.read_bytes()
    shutil.rmtree(tmp_path / "results" / "kept")
    out = diffcredit.printed("validate", tmp_path, "--part=counterfactual", "--workers=1", warned=True)
    models = int(line(out, "retraining from scratch: counterfactual")[4])
    assert 2 <= models <= 5  # everybody, and a removal each, some of them the same
    assert picture.read_bytes() == seen
    assert rows(tmp_path, "SELECT count(*) FROM evaluations") == recorded
