"""The parts of a validation from ledgers with known games; nothing is trained."""

import csv
import io
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from diffcredit.baselines import BaselineCredits
from diffcredit.baselines.study import StudyBaseline
from diffcredit.coalitions import decode, encode
from diffcredit.credit import KnownSurrogate
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.execution import Task
from diffcredit.ledger import PropertyRecord
from diffcredit.properties.colourfulness import Colourfulness
from diffcredit.properties.measuring import Observation
from diffcredit.study.prepared import recorded_keeper
from diffcredit.study.study import Study
from diffcredit.surrogates import Work
from diffcredit.validation import study as study_validation
from diffcredit.validation.contest import Contest
from diffcredit.validation.study import PARTS, Validation, kept_sections, parts_of
from validated_study import VALIDATION, WEIGHTS, additive, enter, planted, record, validated

# neither images nor a model are needed for these
FROM_THE_LEDGER = ("lds", "counterfactual", "fidelity", "convergence", "budget", "runtime")


@pytest.fixture(autouse=True)
def baselines(monkeypatch):
    """A ranking at random, in place of those that look at images."""
    shuffled = np.random.default_rng(5).permutation(8).astype(float)
    credits = BaselineCredits("random", "", shuffled, {}, 1.0, {})
    kept = [StudyBaseline("random", "floor", None, credits)]
    for place in ("contest", "study_validation"):
        monkeypatch.setattr(f"diffcredit.{place}.kept_baselines", lambda study: kept)
    return kept


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Figures have tests of their own, and take seconds to draw."""
    monkeypatch.setattr("diffcredit.validation.figures._svg", lambda canvas, title: "<svg/>")


def evaluated(contest, parts=FROM_THE_LEDGER, noise=0.1):
    """All that the parts ask for is in the ledger."""
    validation = Validation(contest.study)
    random = {name: additive(noise=noise, seed=50 + place) for place, name in enumerate(validation.names)}
    for part in parts:
        for work in validation.work(part):
            record(work.study, work.missing(), random, lower=["heldout_loss"])
    return validation


def table(section, name):
    """The rows of a section's table, each by its columns."""
    found = next(each for each in section.tables if each.name == name)
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def test_true_credits_foretell_and_random_ones_do_not(tmp_path, baselines):
    section = Validation(planted(tmp_path, noise=0.05).study).section("lds")
    for prop in ("Colourfulness", "Held-out loss"):
        scores = {
            row["method"]: row["LDS, share 0.5"] for row in table(section, "lds-scores") if row["property"] == prop
        }
        assert scores["shapley, sparsified"].value > 0.97
        assert scores["shapley, from_scratch"].value > 0.97
        truth = WEIGHTS - WEIGHTS.mean()
        chance = baselines[0].found.credits - baselines[0].found.credits.mean()
        about = truth @ chance / np.linalg.norm(truth) / np.linalg.norm(chance)
        assert abs(about) < 0.3
        assert scores["random"].value == pytest.approx(about, abs=0.3)


def test_every_part_from_the_ledger(tmp_path):
    few = {"validation": {**VALIDATION, "evaluations": 12}, "stop.evaluations": 12}
    contest = planted(tmp_path, few, noise=0.1)
    validation = evaluated(contest)
    validation.names = ["colourfulness"]  # one is as good as two, and quicker
    for part in FROM_THE_LEDGER:
        section = validation.section(part)
        assert section.part == part
        assert section.summary
        assert section.tables[0].rows
        folder = tmp_path / "results" / "validation" / part
        with (folder / f"{section.tables[0].name}.csv").open(encoding="utf-8", newline="") as file:
            assert len(list(csv.reader(file))) == len(section.tables[0].rows) + 1
    assert [each.part for each in kept_sections(contest.study)] == list(FROM_THE_LEDGER)
    assert set(FROM_THE_LEDGER) < set(PARTS)


def test_leaving_out_the_top_changes_f_by_their_weights(tmp_path):
    """F(N) = 12.25; without the top fifth (two of eight) 5.25, and of a property that is better low −F."""
    contest = planted(tmp_path)
    validation = evaluated(contest, noise=0.0)
    rows = {
        (row["property"], row["action"]): row
        for row in table(validation.section("counterfactual"), "counterfactual")
        if row["method"] == "shapley, sparsified"
    }
    assert {prop for prop, _ in rows} == {"Colourfulness"}  # the first alone, unless others are asked for
    row = rows["Colourfulness", "without the top 20 %"]
    assert row["change"].value == pytest.approx(-100 * 7 / 12.25)
    asked = Validation(contest.study, ["heldout_loss"])
    for work in asked.work("counterfactual"):
        record(work.study, work.missing(), {"heldout_loss": additive()}, lower=["heldout_loss"])
    rows = [row for row in table(asked.section("counterfactual"), "counterfactual") if row["method"].startswith("shap")]
    row = next(row for row in rows if row["action"] == "without the top 20 %")
    assert (row["property"], row["change"].value) == ("Held-out loss", pytest.approx(100 * 7 / 12.25))


def test_fidelity_is_the_correlation_of_the_games(tmp_path):
    """Another retraining whose values are half of retraining's: perfectly correlated, half the credits."""
    contest = Contest(Study.load(validated(tmp_path)))
    record(contest.scratch, contest.design(contest.scratch).tasks, {"colourfulness": additive()})
    record(contest.study, contest.design(contest.study).tasks, {"colourfulness": additive(WEIGHTS / 2)})
    section = Validation(contest.study).section("fidelity")
    (row,) = [row for row in section.tables[0].rows if "sparsified" in row]
    numbers = dict(zip(section.tables[0].columns, row, strict=True))
    pearson = next(cell for column, cell in numbers.items() if column.startswith("Pearson"))
    assert pearson.value == pytest.approx(1.0)


def test_runtime_tells_how_many_times_faster(tmp_path):
    contest = Contest(Study.load(validated(tmp_path)))
    games = {"colourfulness": additive()}
    record(contest.scratch, contest.truth().tasks, games, seconds={"training": 9.0, "sampling": 1.0})
    record(contest.study, contest.design(contest.study).tasks, games, seconds={"training": 1.0, "sampling": 1.0})
    said = Validation(contest.study).section("runtime").summary
    assert any("9 s of training and 1 s of sampling" in sentence for sentence in said)
    assert any("5 times as fast as from_scratch" in sentence for sentence in said)


def test_a_surrogate_that_is_the_game_needs_no_evaluations(tmp_path):
    """Of a property that is better low, F and the surrogates are turned round together."""
    contest = planted(tmp_path, noise=0.5)
    flat = np.ones(8)
    known = {"pools": -WEIGHTS, "real_data": flat}
    vars(contest.study)["surrogates"] = SimpleNamespace(
        names=tuple(known),
        ready=lambda: True,
        standing_in=lambda prop: list(known) if prop == "heldout_loss" else [],
        known=lambda prop, coalitions: (
            [KnownSurrogate(coalitions @ each, each) for each in known.values()] if prop == "heldout_loss" else []
        ),
        work=lambda n, evaluations, names: Work(3 * ("pools" in names), 3 * ("pools" in names)),
    )
    validation = evaluated(contest, ["lds"])
    with pytest.warns(DiffcreditWarning, match="colourfulness: no surrogate stands in for it"):
        section = validation.section("surrogates")
    (alone,) = (row for row in table(section, "surrogates") if row["surrogate"] == "pools" and row["evaluations"] == 0)
    (every,) = (row for row in table(section, "surrogates") if row["surrogate"] == "pools" and row["evaluations"] == 30)
    assert alone["LDS"].value > 0.95
    assert (alone["cost in evaluations"], every["cost in evaluations"]) == (3, 33)
    assert every["LDS"].value == pytest.approx(alone["LDS"].value, abs=0.03)
    assert "surrogates" in parts_of(contest.study)


def test_a_study_without_surrogates_has_no_such_part(tmp_path):
    contest = planted(tmp_path)
    assert parts_of(contest.study) == [part for part in PARTS if part != "surrogates"]
    validation = Validation(contest.study)
    for asked in (validation.work, validation.section):  # before anything is retrained for it
        with pytest.raises(UserError, match="the study file names no surrogates"):
            asked("surrogates")
    vars(contest.study)["surrogates"] = SimpleNamespace(names=("pools",), ready=lambda: False)
    for asked in (validation.work, validation.section):
        with pytest.raises(UserError, match="pools: not measured yet; diffcredit run does that"):
            asked("surrogates")


def test_only_the_properties_asked_for(tmp_path):
    contest = planted(tmp_path, noise=0.1)
    validation = Validation(contest.study, ["heldout_loss"])
    for part in ("lds", "fidelity"):
        section = validation.section(part)
        assert {row[0] for row in section.tables[0].rows} == {"Held-out loss"}
    with pytest.raises(UserError, match=r"study.yaml: --property 'beauty': accepted: colourfulness, heldout_loss"):
        Validation(contest.study, ["heldout_loss", "beauty"])


def test_properties_of_one_title_go_by_their_names(tmp_path):
    properties = [{"name": "colourfulness"}, {"name": "colourfulness", "as": "a/<b>"}]
    contest = Contest(Study.load(validated(tmp_path, {"properties": properties})))
    with contest.study.ledger() as ledger:
        enter(ledger, contest.study, ())
        for name in ("colourfulness", "a/<b>"):
            ledger.register_property("tiny", PropertyRecord(name, {"name": "colourfulness"}, True))
    validation = Validation(contest.study)
    assert [validation.title(name) for name in validation.names] == ["colourfulness", "a/<b>"]


def test_a_part_that_cannot_be_had_says_why(tmp_path):
    contest = Contest(Study.load(validated(tmp_path)))
    record(contest.study, contest.design(contest.study).tasks, {"colourfulness": additive()})
    validation = Validation(contest.study)
    file = tmp_path / "study.yaml"
    for part, said in {
        "lds": "truth coalitions with a value: 0 of 20 at share 0.5; an interval needs at least 10",
        "counterfactual": "no model retrained on all contributors; at least 1 is needed",
        "fidelity": "no evaluations of 'from_scratch' beside truth's yet",
        "runtime": "no model is retrained from scratch yet; the parts lds and fidelity do that",
    }.items():
        with pytest.raises(UserError) as error:
            validation.section(part)
        assert str(error.value) == f"{file}: {part}: {said}"
    assert validation.section("convergence").part == "convergence"  # the others still come
    assert [each.part for each in kept_sections(contest.study)] == ["convergence"]


def test_no_counterfactual_without_credits_of_the_studys_own(tmp_path):
    contest = Contest(Study.load(validated(tmp_path)))
    record(contest.study, contest.design(contest.study).tasks[:4], {"colourfulness": additive()})
    for asked in (Validation(contest.study).work, Validation(contest.study).section):
        with pytest.raises(UserError, match="colourfulness: 'sparsified' has no credits yet; diffcredit run comes"):
            asked("counterfactual")


def test_one_property_without_truth_leaves_the_others(tmp_path):
    contest = Contest(Study.load(validated(tmp_path)))
    games = {"colourfulness": additive(), "heldout_loss": additive()}
    record(contest.study, contest.design(contest.study).tasks, games, lower=["heldout_loss"])
    record(contest.scratch, contest.truth().tasks, {"colourfulness": games["colourfulness"]})
    with pytest.warns(DiffcreditWarning, match="heldout_loss: truth coalitions with a value: 0 of 20"):
        section = Validation(contest.study).section("lds")
    assert {row[0] for row in section.tables[0].rows} == {"Colourfulness"}


def test_a_constant_property_is_told_in_words(tmp_path):
    few = {"validation": {**VALIDATION, "evaluations": 12}, "stop.evaluations": 12}
    contest = Contest(Study.load(validated(tmp_path, few)))
    games = {"colourfulness": lambda coalition: 3.0}
    for each in contest.recipes:
        record(each, contest.design(each).tasks, games)
    record(contest.scratch, contest.truth().tasks, games)
    validation = Validation(contest.study)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sections = {part: validation.section(part) for part in ("lds", "fidelity", "convergence", "budget")}
    assert all(row["LDS, share 0.5"] is None for row in table(sections["lds"], "lds-scores"))
    assert sections["lds"].figures == ()
    assert sections["budget"].figures == ()
    assert "lds-by-evaluations" not in [figure.name for figure in sections["convergence"].figures]
    assert all(section.summary for section in sections.values())


def test_an_earlier_section_gives_way(tmp_path):
    contest = Contest(Study.load(validated(tmp_path)))
    games = {"colourfulness": additive(noise=0.1)}
    record(contest.study, contest.design(contest.study).tasks, games)
    tasks = contest.truth().tasks
    record(contest.scratch, tasks[:12], games)
    Validation(contest.study).section("lds")

    def coalitions():
        (section,) = kept_sections(contest.study)
        return {row["coalitions"] for row in table(section, "lds-ceilings")}

    assert coalitions() == {12}
    record(contest.scratch, tasks[12:], games)
    Validation(contest.study).section("lds")
    assert coalitions() == {20}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"validation": {**VALIDATION, "steps": 7}}, r"recipe 'from_scratch' changed: retraining.steps .* → 7"),
        ({"retraining.steps": 7}, r"recipe 'sparsified' changed: retraining.steps 1 → 7"),
    ],
)
def test_evaluations_of_other_settings_are_no_evidence(tmp_path, changes, said):
    """Though all are there, and nothing is left to evaluate."""
    contest = planted(tmp_path)
    assert Validation(contest.study).names == ["colourfulness", "heldout_loss"]
    with pytest.raises(UserError, match=said):
        Validation(Study.load(validated(tmp_path, changes)))


def test_nothing_of_the_study_is_measured(tmp_path):
    contest = Contest(Study.load(validated(tmp_path)))
    record(contest.study, contest.design(contest.study).tasks[:1], {"beauty": lambda coalition: 1.0})
    with pytest.raises(UserError, match=r"study.yaml: properties: none of them is measured yet; diffcredit run comes"):
        Validation(contest.study)


def test_each_rival_stands_for_its_category(tmp_path):
    """The study's own, the better of two leave-one-outs, and no other recipe of the study's own kinds."""
    contest = planted(tmp_path, noise=0.1)
    coalitions = {task.coalition for work in Validation(contest.study).work("counterfactual") for task in work.tasks}
    assert "1" * 8 in coalitions
    top = np.argsort(-WEIGHTS)
    without_top = np.ones(8, bool)
    without_top[top[:2]] = False
    assert any(np.array_equal(decode(each), without_top) for each in coalitions)


def test_convergence_is_computed_once_for_what_there_is(tmp_path, monkeypatch):
    contest = planted(tmp_path, noise=0.5)
    computed = []
    compute = study_validation.convergence
    monkeypatch.setattr(study_validation, "convergence", lambda *given: computed.append(1) or compute(*given))
    validation = Validation(contest.study, ["colourfulness"])
    validation.section("convergence")
    validation.section("budget")
    assert len(computed) == 1
    more = [Task("10000001", 7, "estimate")]
    record(contest.study, more, {"colourfulness": lambda coalition: 3.0})
    validation.section("budget")
    assert len(computed) == 2


def test_what_single_images_have_is_called_by_its_own_name(tmp_path, monkeypatch):
    """As minus the entropy of an image's classes is no Inception Score."""
    contest = planted(tmp_path, noise=0.5)
    noises = np.random.default_rng(7).integers(0, 256, (8, 16, 16, 3), dtype=np.uint8)
    for place in ("study_validation", "study_baselines"):
        monkeypatch.setattr(f"diffcredit.{place}.generated_images", lambda study: noises)
    monkeypatch.setattr(Colourfulness, "title_of_each", "Colours of one image", raising=False)
    vars(contest.study)["properties"] = [Colourfulness()]
    section = Validation(contest.study, ["colourfulness"]).section("contributors")
    measures = {row["measure"] for row in table(section, "contributors-correlation")}
    assert {"Colours of one image", "nearness to the base model's clusters"} <= measures
    assert "Colourfulness" not in measures
    assert all("Colours of one image" in each.caption for each in section.photographs)
    other = Colourfulness()
    other.name = "heldout_loss"  # another that is called alike
    vars(contest.study)["properties"] = [Colourfulness(), other]
    section = Validation(contest.study, ["colourfulness"]).section("contributors")
    assert len({row["measure"] for row in table(section, "contributors-correlation")}) == len(measures) + 1


def test_a_recipe_whose_images_are_lost_is_left_out_of_unlearning(tmp_path, monkeypatch):
    compared = VALIDATION | {"retrainings": [{"method": "fine_tune", "steps": 1}]}
    contest = planted(tmp_path, {"validation": compared})
    validation, random = evaluated(contest, ["unlearning"]), np.random.default_rng(0)

    def images():
        return random.integers(0, 256, (12, 16, 16, 3), np.uint8)

    monkeypatch.setattr(study_validation, "generated_images", lambda study: images())
    vars(validation.study)["properties"] = [Colourfulness()]
    scratch, lost = validation.contest.scratch.name, "fine_tune"
    with pytest.raises(UserError, match=rf"unlearning: images of \d+ of \d+ models of '{scratch}' are not there"):
        validation.section("unlearning")
    for work in validation.work("unlearning"):
        assert work.unseen() == work.tasks
        keeper = recorded_keeper(work.study)
        for task in work.tasks if work.recipe.name != lost else work.tasks[1:]:
            keeper.keep(task, Observation(work.recipe.study.prepared.extractors, images()))
        assert work.unseen() == (work.tasks[:1] if work.recipe.name == lost else [])
    section = validation.section("unlearning")
    recipes = [row["recipe"] for row in table(section, "unlearning")]
    assert recipes == [contest.study.recipe.name, None, None]
    assert any(f"{lost} is left out: images of 1 of" in caveat for caveat in section.caveats)


def test_images_without_each_methods_top_stand_below_each_other(tmp_path, monkeypatch, baselines):
    """Each image is as red as its coalition's number; three of eight are 40 %, halves up."""
    similar = BaselineCredits("similar", "", np.arange(8.0), {}, 1.0, {})
    baselines.append(StudyBaseline("similar", "similarity", None, similar))
    validation = evaluated(planted(tmp_path, noise=0.1), ["counterfactual"])

    def kept(self, each, task):
        images = np.zeros((12, 16, 16, 3), np.uint8)
        images[..., 0] = int(task.coalition, 2)
        return images

    monkeypatch.setattr(Validation, "_kept", kept)
    monkeypatch.setattr(Validation, "property", lambda self, name: SimpleNamespace())  # none of a single image
    (work,) = validation.work("counterfactual")
    section = validation.section("counterfactual")
    picture = next(each for each in section.photographs if each.name == "methods-1")
    assert "everybody; shapley, sparsified; leave-one-out" in picture.caption
    assert picture.caption.startswith("Rows from top to bottom: ")
    with Image.open(io.BytesIO(picture.png)) as found:
        shown = np.asarray(found)
    height = 4 * 16 + 2  # magnified, and the gap
    rows = [int(shown[place, 0, 0]) for place in range(0, len(shown), height)]
    own, similarity = np.ones(8, bool), np.ones(8, bool)
    own[np.argsort(-WEIGHTS)[:3]] = similarity[-3:] = False
    assert [rows[0], rows[1], rows[-1]] == [255, int(encode(own), 2), int(encode(similarity), 2)]
    assert len(rows) == 4
    # what is shown is kept: of our own credits each removal, of every other method this one
    seen = {task.coalition for task in work.seen}
    assert {encode(similarity), encode(own), "1" * 8} <= seen
    assert {task.replicate for task in work.seen} == {work.seen[0].replicate}


def test_no_images_are_shown_where_everybodys_are_not_there(tmp_path, monkeypatch):
    validation = evaluated(planted(tmp_path, noise=0.1), ["counterfactual"])
    images = np.zeros((12, 16, 16, 3), np.uint8)
    monkeypatch.setattr(Validation, "_kept", lambda self, each, task: images if "0" in task.coalition else None)
    assert validation.section("counterfactual").photographs == ()
