"""The parts of a validation from ledgers with known games; nothing is trained."""

import csv
import io
import shutil
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from diffcredit.baselines import BaselineCredits
from diffcredit.baselines.study import StudyBaseline
from diffcredit.coalitions import encode
from diffcredit.credit import KnownSurrogate
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.execution import Task
from diffcredit.properties.colourfulness import Colourfulness
from diffcredit.properties.distances import FrechetDistance
from diffcredit.properties.measuring import Observation
from diffcredit.study.prepared import Prepared
from diffcredit.study.study import Study
from diffcredit.surrogates import Work
from diffcredit.validation.data import ValidationData
from diffcredit.validation.parts import PARTS, convergence
from diffcredit.validation.statistics.convergence import convergence_curves
from diffcredit.validation.validate import _ordered, kept_sections, make_section, open_data, validate
from validated_study import VALIDATION, WEIGHTS, additive, planted, record, validated

# neither images nor a model are needed for these
FROM_THE_LEDGER = ("lds", "counterfactual", "fidelity", "convergence", "budget", "runtime")
FEW = {"validation": {**VALIDATION, "evaluations": 12}, "stop.evaluations": 12}


@pytest.fixture(autouse=True)
def baselines(monkeypatch):
    """A ranking at random, in place of those that look at images; and two estimators for all."""
    monkeypatch.setattr("diffcredit.validation.data.ESTIMATORS", {"shapley": "shapley", "banzhaf": "banzhaf"})
    few = partial(convergence_curves, estimators=("unshrunk",))
    monkeypatch.setattr("diffcredit.validation.parts.convergence.convergence_curves", few)
    shuffled = np.random.default_rng(5).permutation(8).astype(float)
    kept = [StudyBaseline("random", "floor", None, BaselineCredits("random", "", shuffled, {}, 1.0, {}))]
    monkeypatch.setattr("diffcredit.validation.contenders.kept_baselines", lambda study: kept)
    return kept


def evaluate(data, parts, noise=0.05):
    """All that the parts ask for is in the ledger."""
    games = {name: additive(noise=noise, seed=50 + place) for place, name in enumerate(data.names)}
    for part in parts:
        for work in PARTS[part].work(data):
            record(work.recipe, work.missing(), games, lower=["heldout_loss"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study with all evaluations that `FROM_THE_LEDGER` needs; tests read it, or copy it."""
    folder = tmp_path_factory.mktemp("planted")
    evaluate(planted(folder, noise=0.05), FROM_THE_LEDGER)
    return folder


@pytest.fixture
def copied(folder, tmp_path):
    return shutil.copytree(folder, tmp_path, dirs_exist_ok=True)


def opened(folder, *properties):
    return open_data(Study.load(folder), properties)


def begun(folder, changes=None, games=None, truth=0):
    """A study whose own design is evaluated, and so many of truth's tasks."""
    data = ValidationData(Study.load(validated(folder, changes)))
    games = games or {"colourfulness": additive(noise=0.1)}
    record(data.study.recipe, data.design(data.study.recipe).tasks, games, lower=["heldout_loss"])
    record(data.scratch, data.truth().tasks[:truth], games, lower=["heldout_loss"])
    return data


def table(section, name):
    """The rows of a section's table, each by its columns."""
    found = next(each for each in section.tables if each.name == name)
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def test_true_credits_predict_and_random_ones_do_not(folder, baselines):
    section = make_section(opened(folder), "lds")
    for prop in ("Colourfulness", "Held-out loss"):
        rows = [row for row in table(section, "lds-scores") if row["property"] == prop]
        scores = {row["method"]: row["LDS, share 0.5"] for row in rows}
        assert scores["shapley, sparsified"].value > 0.97
        assert scores["shapley, from_scratch"].value > 0.97
        truth = WEIGHTS - WEIGHTS.mean()
        chance = baselines[0].found.credits - baselines[0].found.credits.mean()
        about = truth @ chance / np.linalg.norm(truth) / np.linalg.norm(chance)
        assert abs(about) < 0.3
        assert scores["random"].value == pytest.approx(about, abs=0.3)


def test_every_part_from_the_ledger(copied):
    found = Study.load(copied).validate(FROM_THE_LEDGER[::-1], ["colourfulness"])
    assert found.left_out == {}
    assert [section.part for section in found.sections] == list(FROM_THE_LEDGER)
    for section in found.sections:
        assert section.summary
        assert section.tables[0].rows
        file = copied / "results" / "validation" / section.part / f"{section.tables[0].name}.csv"
        with file.open(encoding="utf-8", newline="") as lines:
            assert len(list(csv.reader(lines))) == len(section.tables[0].rows) + 1
    assert [each.part for each in kept_sections(Study.load(copied))] == list(FROM_THE_LEDGER)


def test_leaving_out_the_top_changes_f_by_their_weights(tmp_path):
    """F(N) = 12.25; without the top fifth (two of eight) 5.25, and of a property that is better low −F."""
    names = ("colourfulness", "heldout_loss")
    begun(tmp_path, FEW, games={name: additive() for name in names})
    for asked, prop, change in (([], "Colourfulness", -7), (["heldout_loss"], "Held-out loss", 7)):
        data = opened(tmp_path, *asked)
        evaluate(data, ["counterfactual"], noise=0.0)
        rows = table(make_section(data, "counterfactual"), "counterfactual")
        assert {row["property"] for row in rows} == {prop}  # the first alone, unless others are asked for
        own = {row["action"]: row for row in rows if row["method"] == "shapley, sparsified"}
        assert own["without the top 20 %"]["change"].value == pytest.approx(100 * change / 12.25)


def test_a_surrogate_that_is_the_game_needs_no_evaluations(folder):
    """Of a property that is better low, F and the surrogates are turned round together."""
    data = opened(folder)
    known = {"pools": -WEIGHTS, "real_data": np.ones(8)}
    vars(data.study)["surrogates"] = SimpleNamespace(
        names=tuple(known),
        ready=lambda: True,
        when_ready=lambda evaluations: None,
        standing_in=lambda prop: list(known) if prop == "heldout_loss" else [],
        known=lambda prop, coalitions: (
            [KnownSurrogate(coalitions @ each, each) for each in known.values()] if prop == "heldout_loss" else []
        ),
        work=lambda n, evaluations, names: Work(3 * ("pools" in names), 3 * ("pools" in names)),
    )
    with pytest.warns(DiffcreditWarning, match="colourfulness: no surrogate stands in for it"):
        section = make_section(data, "surrogates")
    rows = {(row["surrogate"], row["evaluations"]): row for row in table(section, "surrogates")}
    alone, every = rows["pools", 0], rows["pools", 30]
    assert alone["LDS"].value > 0.95
    assert (alone["cost in evaluations"], every["cost in evaluations"]) == (3, 33)
    assert every["LDS"].value == pytest.approx(alone["LDS"].value, abs=0.03)
    (caveat,) = convergence.surrogates_caveat(data)
    assert "the study's surrogates (pools, real_data) take no part" in caveat


def test_a_study_without_surrogates_has_no_such_part(folder):
    data = opened(folder)
    assert _ordered(data.study, []) == [part for part in PARTS if part != "surrogates"]
    for asked in (PARTS["surrogates"].work, PARTS["surrogates"].result):  # before anything is retrained for it
        with pytest.raises(UserError, match="the study file names no surrogates"):
            asked(data)
    without = SimpleNamespace(names=("pools",), ready=lambda: False, when_ready=lambda evaluations: None)
    vars(data.study)["surrogates"] = without
    for asked in (PARTS["surrogates"].work, PARTS["surrogates"].result):
        with pytest.raises(UserError, match="pools: not measured yet; diffcredit run does that"):
            asked(data)


def test_only_what_is_asked_for(folder):
    section = make_section(opened(folder, "heldout_loss"), "fidelity")
    assert {row[0] for row in section.tables[0].rows} == {"Held-out loss"}
    with pytest.raises(UserError, match=r"study.yaml: --property 'beauty': accepted: colourfulness, heldout_loss"):
        opened(folder, "heldout_loss", "beauty")
    with pytest.raises(UserError, match="part 'luck': accepted: lds, surrogates, counterfactual, "):
        validate(Study.load(folder), ["luck"])


def test_a_part_that_cannot_be_had_says_why(tmp_path):
    data = begun(tmp_path)
    reasons = {
        "lds": "truth coalitions with a value: 0 of 20 at share 0.5; an interval needs at least 10",
        "counterfactual": "no model retrained on all contributors; at least 1 is needed",
        "fidelity": "no evaluations of 'from_scratch' beside truth's yet",
        "runtime": "no model is retrained from scratch yet; the parts lds and fidelity do that",
    }
    found = validate(data.study, [*reasons, "convergence"])
    assert found.left_out == {part: f"{tmp_path / 'study.yaml'}: {part}: {said}" for part, said in reasons.items()}
    assert [each.part for each in found.sections] == ["convergence"]  # the others still come
    assert [each.part for each in kept_sections(data.study)] == ["convergence"]


def test_one_property_without_truth_leaves_the_others(tmp_path):
    data = begun(tmp_path, games={"colourfulness": additive(), "heldout_loss": additive()})
    record(data.scratch, data.truth().tasks, {"colourfulness": additive()})
    with pytest.warns(DiffcreditWarning, match="heldout_loss: truth coalitions with a value: 0 of 20"):
        section = make_section(data, "lds")
    assert {row[0] for row in section.tables[0].rows} == {"Colourfulness"}


def test_a_constant_property_is_said_in_words(tmp_path):
    games = {"colourfulness": lambda coalition: 3.0}
    data = begun(tmp_path, FEW, games, truth=40)
    record(data.scratch, data.design(data.scratch).tasks, games)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sections = {part: make_section(data, part) for part in ("lds", "fidelity", "convergence", "budget")}
    assert all(row["LDS, share 0.5"] is None for row in table(sections["lds"], "lds-scores"))
    assert sections["lds"].figures == ()
    assert sections["budget"].figures == ()
    assert "lds-by-evaluations" not in [figure.name for figure in sections["convergence"].figures]
    assert all(section.summary for section in sections.values())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"validation": {**VALIDATION, "steps": 7}}, r"recipe 'from_scratch' changed: retraining.steps .* → 7"),
        ({"retraining.steps": 7}, r"recipe 'sparsified' changed: retraining.steps 1 → 7"),
    ],
)
def test_evaluations_of_other_settings_are_no_evidence(copied, changes, said):
    """Though all are there, and nothing is left to evaluate."""
    assert opened(copied).names == ["colourfulness", "heldout_loss"]
    with pytest.raises(UserError, match=said):
        opened(validated(copied, changes))


def test_nothing_of_the_study_is_measured(tmp_path):
    data = ValidationData(Study.load(validated(tmp_path)))
    record(data.study.recipe, data.design(data.study.recipe).tasks[:1], {"beauty": lambda coalition: 1.0})
    with pytest.raises(UserError, match=r"study.yaml: properties: none of them is measured yet; diffcredit run comes"):
        opened(tmp_path)


def without(order):
    """A coalition without the first three of eight: 40 %, halves up."""
    coalition = np.ones(8, bool)
    coalition[order[:3]] = False
    return encode(coalition)


def test_convergence_is_computed_once_for_what_there_is(copied, monkeypatch):
    data = opened(copied, "colourfulness")
    games, computed = data.games("colourfulness"), []
    known = convergence_curves(games, data.truths("colourfulness"), None, ["unshrunk"])
    monkeypatch.setattr(convergence, "convergence_curves", lambda *given: computed.append(1) or known)
    for part in ("convergence", "budget"):
        make_section(data, part)
    assert len(computed) == 1
    record(data.study.recipe, [Task("10000001", 7, "estimate")], {"colourfulness": lambda coalition: 3.0})
    make_section(data, "budget")
    assert len(computed) == 2


def test_what_single_images_have_is_called_by_its_own_name(folder, monkeypatch):
    """As minus the entropy of an image's classes is no Inception Score."""
    noises = np.random.default_rng(7).integers(0, 256, (8, 16, 16, 3), dtype=np.uint8)
    monkeypatch.setattr(Prepared, "generated_images", lambda self: noises)
    monkeypatch.setattr(Colourfulness, "title_of_each", "Colours of one image", raising=False)
    data, other = opened(folder, "colourfulness"), Colourfulness()
    other.name = "heldout_loss"  # another that is called alike
    found = []
    for properties in ([Colourfulness()], [Colourfulness(), other, FrechetDistance()]):  # the last of no single image
        vars(data.study.prepared)["properties"] = properties
        section = make_section(data, "contributors")
        found.append({row["measure"] for row in table(section, "contributors-correlation")})
        if len(properties) == 1:
            assert all("Colours of one image" in each.caption for each in section.photographs)
    assert {"Colours of one image", "nearness to the base model's clusters"} <= found[0]
    assert "Colourfulness" not in found[0]
    assert len(found[1]) == len(found[0]) + 1


def test_a_recipe_whose_images_are_lost_is_left_out_of_unlearning(tmp_path, monkeypatch):
    compared = VALIDATION | {"retrainings": [{"method": "fine_tune", "steps": 1}]}
    data, random = begun(tmp_path, {"validation": compared}), np.random.default_rng(0)
    evaluate(data, ["unlearning"])

    def images():
        return random.integers(0, 256, (12, 16, 16, 3), np.uint8)

    monkeypatch.setattr(Prepared, "generated_images", lambda self: images())
    vars(data.study.prepared)["properties"] = [Colourfulness()]
    scratch, lost = data.scratch.name, "fine_tune"
    with pytest.raises(UserError, match=rf"unlearning: images of \d+ of \d+ models of '{scratch}' are not there"):
        make_section(data, "unlearning")
    for work in PARTS["unlearning"].work(data):
        assert work.without_images() == work.tasks
        keeper = work.recipe.recorded_keeper()
        for task in work.tasks if work.recipe.name != lost else work.tasks[1:]:
            keeper.keep(task, Observation(data.study.prepared.extractors, images()))
        assert work.without_images() == (work.tasks[:1] if work.recipe.name == lost else [])
    section = make_section(data, "unlearning")
    assert [row["recipe"] for row in table(section, "unlearning")] == [data.study.recipe.name, None, None]
    assert any(f"{lost} is left out: images of 1 of" in caveat for caveat in section.caveats)


def test_images_without_each_methods_top_stand_below_each_other(copied, monkeypatch, baselines):
    """The rivals are the study's own credits, leave-one-out and the best of other kinds. Each image is as red as its
    coalition's number."""
    similar = BaselineCredits("similar", "", np.arange(8.0), {}, 1.0, {})
    baselines.append(StudyBaseline("similar", "similarity", None, similar))
    data = opened(copied)
    evaluate(data, ["counterfactual"])

    def kept(recipe, task):
        images = np.zeros((12, 16, 16, 3), np.uint8)
        images[..., 0] = int(task.coalition, 2)
        return images

    monkeypatch.setattr("diffcredit.validation.parts.counterfactual.kept_images", kept)
    monkeypatch.setattr(ValidationData, "fitted_property", lambda self, name: FrechetDistance())  # of no single image
    (work,) = PARTS["counterfactual"].work(data)
    section = make_section(data, "counterfactual")
    picture = next(each for each in section.photographs if each.name == "methods-1")
    assert picture.caption.startswith("Rows from top to bottom: everybody; shapley, sparsified; leave-one-out")
    with Image.open(io.BytesIO(picture.png)) as found:
        shown = np.asarray(found)
    height = 4 * 16 + 2  # magnified, and the gap
    rows = [int(shown[place, 0, 0]) for place in range(0, len(shown), height)]
    own, similarity = without(np.argsort(-WEIGHTS)), without(np.arange(8)[::-1])
    assert [rows[0], rows[1], rows[-1]] == [255, int(own, 2), int(similarity, 2)]
    assert len(rows) == 4
    # what is shown is kept: of our own credits each removal, of every other method this one
    assert {similarity, own, "1" * 8} <= {task.coalition for task in work.pictured}
    assert {task.replicate for task in work.pictured} == {work.pictured[0].replicate}
    monkeypatch.setattr(
        "diffcredit.validation.parts.counterfactual.kept_images",
        lambda recipe, task: kept(recipe, task) if "0" in task.coalition else None,
    )
    assert make_section(data, "counterfactual").photographs == ()  # none where everybody's are not there
