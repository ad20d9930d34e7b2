"""What is read from ledgers with known games: truths, games, credits, seconds, and what is left out of them."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from diffcredit.baselines import BaselineCredits
from diffcredit.baselines.study import StudyBaseline
from diffcredit.coalitions import encode, make_design
from diffcredit.credit import KnownSurrogate
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.ledger import PropertyRecord
from diffcredit.ledger.purposes import TRUTH_REPLICATE
from diffcredit.study.reserved import truth_task
from diffcredit.study.schedule import tasks_of
from diffcredit.study.study import Study
from diffcredit.validation.data import ValidationData
from diffcredit.validation.parts import contributors, surrogacy, unlearning
from tiny_study import images_of
from validated_study import NAMES, VALIDATION, WEIGHTS, additive, enter, planted, record, validated

GAMES = {"colourfulness": additive()}


@pytest.fixture
def data(tmp_path):
    """Nothing is evaluated yet."""
    return ValidationData(Study.load(validated(tmp_path)), baselines=[])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All evaluations of a study, of an additive game without noise; tests only read it."""
    folder = tmp_path_factory.mktemp("exact")
    planted(folder)
    return folder


@pytest.fixture
def exact(folder):
    return ValidationData(Study.load(folder), baselines=[])


# Truth.
def test_truth_is_what_was_retrained(data, tmp_path):
    """As it comes in: too few coalitions with all seeds count with fewer seeds, too few with one seed not at all."""
    tasks, game = data.truth().tasks, {"colourfulness": additive(noise=0.5)}
    shapes = {9: None, 20: (20, 1), 29: (20, 1), 30: (10, 2), 32: (12, 2), 40: (20, 2)}
    for count, shape in shapes.items():
        done = len(tasks) - len(data.truth().missing())
        record(data.scratch, tasks[done:count], game)
        assert [truth.values.shape for truth in data.truths("colourfulness")] == ([shape] if shape else [])
    (truth,) = data.truths("colourfulness")
    assert truth.share == 0.5
    assert set(truth.coalitions.sum(axis=1)) == {4}
    recorded = {each.key: each.values[0].value for each in data.scratch.evaluations(purpose="truth")}
    for row, values in zip(truth.coalitions, truth.values, strict=True):
        assert list(values) == [recorded[encode(row), TRUTH_REPLICATE + seed] for seed in (0, 1)]
    # a study file that asks for more or fewer keeps the first ones
    first = [encode(row) for row in truth.coalitions]
    for asked, missing in ((30, 2 * 10), (12, 0)):
        other = ValidationData(Study.load(validated(tmp_path, {"validation": {**VALIDATION, "coalitions": asked}})))
        assert len(other.truth().missing()) == missing
        assert [encode(row) for row in other.truths("colourfulness")[0].coalitions] == first[:asked]


def test_what_failed_or_was_not_measured_is_no_truth(data):
    tasks = data.truth().tasks
    lost, blind = tasks[0].coalition, tasks[1].coalition
    record(
        data.scratch,
        tasks,
        GAMES,
        failed=lambda task: task.coalition == lost,
        unmeasured=lambda task: task.coalition == blind,
    )
    known = {encode(row) for row in data.truths("colourfulness")[0].coalitions}
    assert known == {task.coalition for task in tasks} - {lost, blind}
    assert {task.coalition for task in data.truth().missing()} == {lost}  # what failed is tried again


def test_everybodys_retrained_endpoints_are_truth_too(data):
    everybody, nobody = "1" * len(NAMES), "0" * len(NAMES)
    endpoints = [task for task in data.design(data.scratch).tasks if task.purpose == "endpoint"]
    assert {task.coalition for task in endpoints} == {everybody, nobody}
    values = iter(range(100))
    record(data.scratch, endpoints, {"colourfulness": lambda coalition: float(next(values))})
    own = [float(place) for place, task in enumerate(endpoints) if task.coalition == everybody]
    assert data.truth_values("colourfulness") == {everybody: own}
    record(data.scratch, [truth_task(everybody, 0)], {"colourfulness": lambda coalition: 50.0})
    assert sorted(data.truth_values("colourfulness")[everybody]) == sorted([*own, 50.0])


# Games.
def test_a_game_is_in_the_order_of_the_design(data):
    """Evaluations that failed have their places too."""
    tasks = data.design(data.study.recipe).tasks
    drawn = [task for task in tasks if task.purpose == "estimate"]
    lost = {task.coalition for task in drawn[:12]}
    shuffled = [tasks[place] for place in np.random.default_rng(0).permutation(range(1, len(tasks)))]
    record(data.study.recipe, shuffled, GAMES, failed=lambda task: task.coalition in lost)
    assert data.game(data.study.recipe, "colourfulness") is None  # an endpoint is missing
    record(data.study.recipe, tasks[:1], GAMES)
    game = data.game(data.study.recipe, "colourfulness")
    assert [encode(row) for row in game.coalitions] == [each.coalition for each in drawn if each.coalition not in lost]
    assert game.values == pytest.approx(game.coalitions @ WEIGHTS)
    assert (game.empty, game.full) == ((0.0,), (pytest.approx(WEIGHTS.sum()),))
    assert (game.method, game.steps, game.size_distribution) == ("sparsified", 1, "uniform")


def test_recipes_that_differ_in_more_than_their_steps_are_not_of_one_method(tmp_path):
    """Else a figure over steps would join them."""
    own = {"method": "fine_tune", "steps": 2, "learning_rate": 1e-3}
    others = [
        own | {"name": "longer", "steps": 4},
        own | {"name": "slower", "learning_rate": 1e-4},
        own | {"name": "slower-longer", "steps": 4, "learning_rate": 1e-4},
        {"method": "lora", "steps": 2},
    ]
    changes = {"retraining": own, "validation": {**VALIDATION, "retrainings": others}}
    data = ValidationData(Study.load(validated(tmp_path, changes)))
    for each in data.recipes:
        record(each, data.design(each).tasks[-1:], GAMES)
    assert {each.name: data.timings(each).method for each in data.recipes} == {
        "fine_tune": "fine_tune",
        "longer": "fine_tune",
        "slower": "slower",
        "slower-longer": "slower",
        "lora": "lora",
        "from_scratch": "from_scratch",
    }


def test_coalitions_that_are_truths_are_left_out_with_a_warning(data):
    """A study that was run before its file spoke of validation has evaluated some of them, here with other values."""
    met, endpoints = [*tasks_of(make_design("uniform", 0), 8, 30)], data.design(data.study.recipe).tasks[:2]
    truth = {task.coalition for task in data.truth().tasks}
    shared = [task for task in met if task.coalition in truth]
    assert shared
    record(data.study.recipe, [*endpoints, *(task for task in met if task not in shared)], GAMES)
    record(data.study.recipe, shared, {"colourfulness": lambda coalition: 1000.0})
    with pytest.warns(DiffcreditWarning, match=f"sparsified: {len(shared)} evaluations of coalitions that are truth's"):
        game = data.game(data.study.recipe, "colourfulness")
    assert len(game.values) == len(met) - len(shared)
    assert not truth & {encode(row) for row in game.coalitions}
    vars(data.study)["surrogates"] = surrogates(np.arange(8.0), ["colourfulness"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning comes once
        first = data.contenders("colourfulness")[0]
    assert first.name == "shapley with pools, sparsified"
    assert first.credits == pytest.approx(WEIGHTS, abs=1e-6)


def test_coalitions_of_which_none_is_retrained_are_in_the_game(tmp_path):
    """Of five contributors, half of the ten coalitions of two are too few for truth."""
    changes = {"design": {"distribution": "exhaustive", "full_replicates": 1}, "stop": {"evaluations": 30}}
    data = ValidationData(Study.load(validated(tmp_path, changes, NAMES[:5])))
    assert data.truth().tasks == []
    record(data.study.recipe, data.design(data.study.recipe).tasks, {"colourfulness": additive(WEIGHTS[:5])})
    assert len(data.game(data.study.recipe, "colourfulness").values) == 30


def test_helpfulness_is_negated_where_lower_is_better(exact):
    for prop in ("colourfulness", "heldout_loss"):  # −F of the second is the first's F
        game = exact.game(exact.study.recipe, prop)
        assert game.values == pytest.approx(game.coalitions @ WEIGHTS)
        (truth,) = exact.truths(prop)
        assert truth.values[:, 0] == pytest.approx(truth.coalitions @ WEIGHTS)
        coalition, values = next(iter(exact.truth_values(prop).items()))
        assert values == pytest.approx([WEIGHTS[[member == "1" for member in coalition]].sum()] * 2)


def test_seconds_are_those_of_training_and_sampling(data):
    """A retraining takes 4 s, a cheap one 2 s; its two steps of preparation 1.5 s each, as its training does."""
    record(data.scratch, data.truth().tasks[:3], GAMES, seconds={"training": 3.0, "sampling": 1.0, "measuring": 99.0})
    own = data.study.recipe
    record(own, data.design(own).tasks[:4], GAMES, seconds={"training": 1.5, "sampling": 0.5})
    assert (data.seconds(data.scratch), data.seconds(own)) == (4.0, 2.0)
    assert data.game(own, "colourfulness").preparation == 2 * 1.5
    record(own, data.design(own).tasks[4:5], GAMES, seconds={})
    assert np.isnan(data.timings(own).seconds).sum() == 1


# Contenders.
def test_every_estimator_finds_the_credits_of_an_additive_game(exact):
    found = exact.contenders("heldout_loss")
    assert found[0].name == "shapley, sparsified"
    assert {each.recipe for each in found} == {"sparsified", "from_scratch"}
    assert {each.name.partition(",")[0] for each in found} == {
        *("shapley", "kernelshap", "unshrunk", "banzhaf", "datamodel", "leave-one-out"),
    }
    for each in found:
        # a ridge penalty draws the datamodel's a little towards 0
        assert each.credits == pytest.approx(WEIGHTS, abs=0.1 if each.category == "datamodel" else 1e-6), each.name
        assert each.evaluations == (8 if each.category == "leave-one-out" else 30)


def test_leave_one_out_needs_everybody(data):
    tasks = data.leave_one_out(data.study.recipe).tasks
    assert [task.coalition for task in tasks[2:]] == [encode(row) for row in ~np.eye(len(NAMES), dtype=bool)]
    record(data.study.recipe, tasks[:-1], GAMES)
    assert data.contenders("colourfulness") == []


def test_a_baseline_is_negated_where_it_measures_what_is_better_low(exact):
    def baseline(name, prop, credits):
        return StudyBaseline(name, "control", prop, BaselineCredits(name, "", credits, {}, 8.0, {}))

    counted = np.arange(8.0)
    exact.baselines = [
        baseline("images", None, counted),
        baseline("of the loss", "heldout_loss", counted),
        baseline("of colours", "colourfulness", counted),
        baseline("the same for all", None, np.ones(8)),
    ]
    for prop, expected in (
        ("heldout_loss", {"images": counted, "of the loss": -counted}),
        ("colourfulness", {"images": counted, "of colours": counted}),
    ):
        found = {each.name: list(each.credits) for each in exact.contenders(prop) if not each.recipe}
        assert found == {name: list(credits) for name, credits in expected.items()}


def surrogates(weights, properties=("heldout_loss",)):
    """A surrogate that is the game itself: credits corrected by any evaluations are exact."""
    return SimpleNamespace(
        names=("pools", "real_data"),
        ready=lambda: True,
        when_ready=lambda evaluations: None,
        standing_in=lambda prop: ["pools"] if prop in properties else [],
        known=lambda prop, coalitions: [KnownSurrogate(coalitions @ weights, weights)] if prop in properties else [],
    )


def test_credits_corrected_by_surrogates_come_first(exact):
    """And a property without a surrogate has none."""
    vars(exact.study)["surrogates"] = surrogates(-WEIGHTS)  # F itself of a property that is better low
    found = exact.contenders("heldout_loss")
    first, second = found[:2]
    assert (first.name, first.category, first.evaluations) == ("shapley with pools, sparsified", "shapley", 30)
    assert first.credits == pytest.approx(WEIGHTS, abs=1e-6)
    assert second.name == "shapley, sparsified"
    (alone,) = (each for each in found if each.category == "surrogate")
    assert (alone.name, alone.recipe, alone.evaluations) == ("surrogate pools", "", 0)
    assert list(alone.credits) == list(WEIGHTS)
    found = exact.contenders("colourfulness")
    assert found[0].name == "shapley, sparsified"
    assert "surrogate" not in {each.category for each in found}


def test_a_property_without_corrected_credits_has_its_other_contenders(data):
    record(data.study.recipe, data.design(data.study.recipe).tasks[:3], GAMES)
    with data.study.ledger() as ledger:
        ledger.register_property("tiny", PropertyRecord("heldout_loss", {"name": "heldout_loss"}, False))
    vars(data.study)["surrogates"] = surrogates(WEIGHTS)
    assert [each.name for each in data.contenders("heldout_loss")] == ["surrogate pools"]


def test_what_surrogates_cost_in_evaluations(tmp_path):
    """2 s an evaluation, a quarter of it sampling; 8 contributors, 20 coalitions of a table, 30 of the design."""
    some = [{"name": name, "coalitions": 20} for name in ("pools", "soup", "real_data")]
    data = ValidationData(Study.load(validated(tmp_path, {"surrogates": some})), baselines=[])
    record(
        data.study.recipe,
        data.design(data.study.recipe).tasks,
        GAMES,
        seconds={"training": 1.5, "sampling": 0.5},
    )
    game = data.game(data.study.recipe, "colourfulness")
    for names, evaluations in (
        (["pools"], 8),
        (["soup"], (8 * 1.5 + (1 + 20 + 30) * 0.5) / 2),
        (["pools", "soup"], (8 * 1.5 + (8 + 1 + 20 + 30) * 0.5) / 2),
        (["real_data"], 0),
    ):
        assert surrogacy._price(data, game, names) == pytest.approx(evaluations)
    game.training_seconds[:] = np.nan  # where seconds are unknown, each fine-tuned model counts as one
    assert surrogacy._price(data, game, ["pools", "real_data"]) == 8


@pytest.mark.parametrize(
    ("distribution", "first", "evaluations"),
    [
        ("leave-one-out", "leave-one-out, sparsified", 8),
        ("add-one-in", "add-one-in, sparsified", 8),
        ("subset(0.25)", "datamodel, sparsified", 28),
    ],
)
def test_the_first_is_what_the_studys_design_is_for(tmp_path, distribution, first, evaluations):
    """A finite design has no more than all of its coalitions, however many validation asks for."""
    changes = {"design": {"distribution": distribution, "full_replicates": 1}, "stop": {"evaluations": evaluations}}
    data = ValidationData(Study.load(validated(tmp_path, changes)), baselines=[])
    assert data.evaluations == evaluations or distribution == "subset(0.25)"
    for work in (data.design(data.study.recipe), data.leave_one_out(data.study.recipe)):
        record(data.study.recipe, work.missing(), GAMES)
    found = data.contenders("colourfulness")
    assert found[0].name == first
    assert len({each.name for each in found}) == len(found)
    if distribution != "subset(0.25)":
        assert {each.name for each in found} == {first, "leave-one-out, sparsified"}
        assert found[0].credits == pytest.approx(WEIGHTS)


def test_properties_of_one_title_go_by_their_names(tmp_path):
    properties = [{"name": "colourfulness"}, {"name": "colourfulness", "as": "a/<b>"}]
    data = ValidationData(Study.load(validated(tmp_path, {"properties": properties})))
    with data.study.ledger() as ledger:
        enter(ledger, data.study.recipe, ())
        for name in ("colourfulness", "a/<b>"):
            ledger.register_property("tiny", PropertyRecord(name, {"name": "colourfulness"}, True))
    assert [data.title(name) for name in data.names] == ["colourfulness", "a/<b>"]


# What cannot be.
def test_what_is_not_evaluated_or_of_other_contributors(data, tmp_path):
    with pytest.raises(UserError, match="nothing is evaluated yet; diffcredit run comes first"):
        _ = data.properties
    record(data.study.recipe, data.design(data.study.recipe).tasks[:3], GAMES)
    other = ValidationData(Study.load(validated(tmp_path, {"name": "other"})))
    with pytest.raises(UserError, match="nothing is evaluated yet"):
        _ = other.properties
    validated(tmp_path)
    images_of(tmp_path / "images", ["zoe"])
    with pytest.raises(UserError) as error:
        _ = ValidationData(Study.load(tmp_path)).properties
    said = "the ledger's evaluations are of 8 contributors, ann, bob, cy, …; the study file's are 9, ann, bob, cy, …"
    assert f"{tmp_path / 'study.yaml'}: contributions: {said}" == str(error.value)


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"retraining": {"method": "from_scratch", "steps": 5}}, True),
        ({"validation": {**VALIDATION, "retrainings": [{"method": "from_scratch", "steps": 5}]}}, True),
        ({"retraining": {"method": "from_scratch", "steps": 5, "name": "short"}}, False),
        ({"retraining": {"method": "from_scratch", "steps": 5}, "validation": {**VALIDATION, "steps": 5}}, False),
    ],
)
def test_truth_shares_its_name_with_no_other_settings(tmp_path, changes, refused):
    study = Study.load(validated(tmp_path, changes, NAMES[:4]))
    if refused:
        with pytest.raises(UserError, match="'from_scratch' is the name of the models that are retrained as truth"):
            ValidationData(study)
    else:
        assert ValidationData(study).scratch.name == "from_scratch"


def test_what_unlearning_asks_for(data):
    own, keeping = unlearning.work(data)
    assert (keeping.recipe.name, keeping.recipe.keep) == ("from_scratch", "images")
    assert [each.coalition for each in keeping.tasks] == 2 * [each.coalition for each in own.tasks]
    assert len({each.coalition for each in own.tasks}) == len(own.tasks)
    assert not {task.key for task in data.truth().tasks} & {task.key for task in keeping.tasks}


def test_two_contributors(tmp_path):
    data = planted(tmp_path, names=NAMES[:2])
    data.baselines = []
    assert data.truth().tasks == []
    assert unlearning.work(data)[0].tasks
    found = {each.name: each for each in data.contenders("colourfulness")}
    assert found["leave-one-out, sparsified"].credits == pytest.approx(WEIGHTS[:2])


# House images.
def test_a_validation_with_house_images(tmp_path):
    """The values of nobody's model are all read; another reference changes none of them, nor who is left out."""
    images_of(tmp_path / "ours", ["us"], each=7)
    given = {"path": "images", "resolution": 16, "holdout": 0.5, "house": "ours"}
    changes = {"contributions": given, "reference": "untrained", "design": {"full_replicates": 3}}
    data = planted(tmp_path, changes)
    assert [task.purpose for task in data.design(data.study.recipe).tasks[:7]] == ["endpoint"] * 6 + ["reference"]
    for game in data.games("colourfulness"):
        assert (len(game.empty), len(game.full)) == (3, 3)
    found = {each.name: each.credits for each in data.contenders("colourfulness")}
    np.testing.assert_allclose(found["leave-one-out, sparsified"], WEIGHTS, atol=1e-9)
    own = contributors.result(data).numbers["Colourfulness"]
    assert all(len(quality.scores) == 1 for measure in own.measures for quality in measure.qualities)
    assert own.top == ("ann", "bob")
