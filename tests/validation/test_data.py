"""What is read from ledgers with known games: truths, games, credits, costs, and what is left out of them."""

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
from diffcredit.validation.parts import surrogacy, unlearning
from tiny_study import images_of
from validated_study import NAMES, VALIDATION, WEIGHTS, additive, planted, record, validated

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
def test_truth_is_what_was_retrained(data):
    record(data.scratch, data.truth().tasks, {"colourfulness": additive(noise=0.5)})
    (truth,) = data.truths("colourfulness")
    assert truth.share == 0.5
    assert truth.values.shape == (20, 2)
    assert set(truth.coalitions.sum(axis=1)) == {4}
    recorded = {each.key: each.values[0].value for each in data.scratch.evaluations(purpose="truth")}
    for row, values in zip(truth.coalitions, truth.values, strict=True):
        assert list(values) == [recorded[encode(row), TRUTH_REPLICATE + seed] for seed in (0, 1)]


@pytest.mark.parametrize(("second", "shape"), [(20, (20, 2)), (12, (12, 2)), (10, (10, 2)), (9, (20, 1)), (0, (20, 1))])
def test_too_few_with_all_seeds_are_told_with_fewer_seeds(data, second, shape):
    tasks = data.truth().tasks
    record(data.scratch, tasks[: 20 + second], GAMES)
    assert data.truths("colourfulness")[0].values.shape == shape


def test_too_few_at_all_are_no_truth(data):
    record(data.scratch, data.truth().tasks[:9], GAMES)
    assert data.truths("colourfulness") == []
    said = "truth coalitions with a value: 9 of 20 at share 0.5; an interval needs at least 10"
    assert data.missing_truth("colourfulness") == said


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


def test_more_and_fewer_truth_coalitions_than_were_retrained(data, tmp_path):
    record(data.scratch, data.truth().tasks, GAMES)
    first = [encode(row) for row in data.truths("colourfulness")[0].coalitions]
    more = ValidationData(Study.load(validated(tmp_path, {"validation": {**VALIDATION, "coalitions": 30}})))
    assert len(more.truth().missing()) == 2 * 10
    assert [encode(row) for row in more.truths("colourfulness")[0].coalitions] == first
    fewer = ValidationData(Study.load(validated(tmp_path, {"validation": {**VALIDATION, "coalitions": 12}})))
    assert fewer.truth().missing() == []
    assert [encode(row) for row in fewer.truths("colourfulness")[0].coalitions] == first[:12]


# Games.
def test_a_game_is_in_the_order_of_the_design(data):
    tasks = data.design(data.study.recipe).tasks
    shuffled = np.random.default_rng(0).permutation(len(tasks))
    record(data.study.recipe, [tasks[place] for place in shuffled], GAMES)
    game = data.game(data.study.recipe, "colourfulness")
    expected = [task.coalition for task in tasks if task.purpose == "estimate"]
    assert [encode(row) for row in game.coalitions] == expected
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
    found = {}
    for each in data.recipes:
        record(each, data.design(each).tasks, GAMES)
        game, timings = data.game(each, "colourfulness"), data.timings(each)
        assert game.method == timings.method
        found[each.name] = game.method
    assert found == {
        "fine_tune": "fine_tune",
        "longer": "fine_tune",
        "slower": "slower",
        "slower-longer": "slower",
        "lora": "lora",
        "from_scratch": "from_scratch",
    }


def test_evaluations_that_failed_do_not_change_the_order_of_the_others(data):
    """The last of the design come out of order where only as many places are known as evaluations are done."""
    tasks = data.design(data.study.recipe).tasks
    drawn = [task for task in tasks if task.purpose == "estimate"]
    lost = {task.coalition for task in drawn[:12]}
    record(data.study.recipe, tasks[::-1], GAMES, failed=lambda task: task.coalition in lost)
    game = data.game(data.study.recipe, "colourfulness")
    assert [encode(row) for row in game.coalitions] == [each.coalition for each in drawn if each.coalition not in lost]


def test_coalitions_that_are_truths_are_left_out_with_a_warning(data):
    """A study that was run before its file spoke of validation has evaluated some of them."""
    met = [*tasks_of(make_design("uniform", 0), 8, 30)]
    endpoints = data.design(data.study.recipe).tasks[:2]
    truth = {task.coalition for task in data.truth().tasks}
    count = sum(task.coalition in truth for task in met)
    assert count > 0
    record(data.study.recipe, [*endpoints, *met], GAMES)
    with pytest.warns(DiffcreditWarning, match=f"sparsified: {count} evaluations of coalitions that are truth's"):
        game = data.game(data.study.recipe, "colourfulness")
    assert len(game.values) == len(met) - count
    assert not truth & {encode(row) for row in game.coalitions}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # told once
        data.game(data.study.recipe, "colourfulness")


def test_coalitions_of_which_none_is_retrained_are_in_the_game(tmp_path):
    """Of five contributors, half of the ten coalitions of two are too few for truth."""
    changes = {"design": {"distribution": "exhaustive", "full_replicates": 1}, "stop": {"evaluations": 30}}
    data = ValidationData(Study.load(validated(tmp_path, changes, NAMES[:5])))
    assert data.truth().tasks == []
    record(data.study.recipe, data.design(data.study.recipe).tasks, {"colourfulness": additive(WEIGHTS[:5])})
    assert len(data.game(data.study.recipe, "colourfulness").values) == 30


def test_no_game_without_endpoints(data):
    tasks = data.design(data.study.recipe).tasks
    record(data.study.recipe, tasks[1:], GAMES)
    assert data.game(data.study.recipe, "colourfulness") is None
    record(data.study.recipe, tasks[:1], GAMES)
    assert data.game(data.study.recipe, "colourfulness") is not None


def test_less_is_better_means_that_helpfulness_is_turned_round(exact):
    data = exact
    for prop in ("colourfulness", "heldout_loss"):  # −F of the second is the first's F
        game = data.game(data.study.recipe, prop)
        assert game.values == pytest.approx(game.coalitions @ WEIGHTS)
        (truth,) = data.truths(prop)
        assert truth.values[:, 0] == pytest.approx(truth.coalitions @ WEIGHTS)
        coalition, values = next(iter(data.truth_values(prop).items()))
        assert values == pytest.approx([WEIGHTS[[member == "1" for member in coalition]].sum()] * 2)


def test_everybodys_retrained_endpoints_are_truth_too(data):
    n = len(NAMES)
    everybody, nobody = "1" * n, "0" * n
    tasks = data.design(data.scratch).tasks
    endpoints = [task for task in tasks if task.purpose == "endpoint"]
    assert {task.coalition for task in endpoints} == {everybody, nobody}
    values = iter(range(100))
    record(data.scratch, endpoints, {"colourfulness": lambda coalition: float(next(values))})
    own = [float(place) for place, task in enumerate(endpoints) if task.coalition == everybody]
    assert data.truth_values("colourfulness") == {everybody: own}
    record(data.scratch, [truth_task(everybody, 0)], {"colourfulness": lambda coalition: 50.0})
    assert sorted(data.truth_values("colourfulness")[everybody]) == sorted([*own, 50.0])


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


def test_leave_one_out_is_the_difference_to_everybody(tmp_path):
    data = planted(tmp_path, noise=1.0)
    sign = {"colourfulness": 1, "heldout_loss": -1}
    for prop in sign:
        found = {each.name: each for each in data.contenders(prop)}["leave-one-out, sparsified"]
        values = {
            (each.coalition, each.purpose): sign[prop] * value.value
            for each in data.study.evaluations()
            for value in each.values
            if value.property == prop
        }
        everybody = values["1" * 8, "endpoint"]
        left = [values["1" * who + "0" + "1" * (7 - who), "validation"] for who in range(8)]
        assert found.credits == pytest.approx(everybody - np.array(left))
        assert (found.evaluations, found.category) == (8, "leave-one-out")


def test_leave_one_out_needs_everybody(data):
    record(data.study.recipe, data.leave_one_out(data.study.recipe).tasks[:-1], GAMES)
    assert data.contenders("colourfulness") == []


def test_costs_are_in_retrainings(data):
    """A retraining takes 4 s; a cheap one 2 s, and 3 s of training for each of its two steps of preparation."""
    record(data.scratch, data.truth().tasks, GAMES, seconds={"training": 3.0, "sampling": 1.0, "measuring": 99.0})
    for work in (data.design(data.study.recipe), data.leave_one_out(data.study.recipe)):
        record(data.study.recipe, work.missing(), GAMES, seconds={"training": 1.5, "sampling": 0.5})
    assert (data.unit(), data.seconds(data.study.recipe)) == (4.0, 2.0)
    costs = {each.name: each.cost for each in data.contenders("colourfulness")}
    assert costs["shapley, sparsified"] == pytest.approx((30 * 2 + 2 * 1.5) / 4)
    assert costs["leave-one-out, sparsified"] == pytest.approx(8 * 2 / 4)


@pytest.mark.parametrize("evaluated", [False, True])
def test_costs_are_not_known_where_nothing_was_timed(data, evaluated):
    record(data.study.recipe, data.design(data.study.recipe).tasks, GAMES, seconds={})
    if evaluated:
        record(data.scratch, data.truth().tasks, GAMES, seconds={})
    found = data.contenders("colourfulness")
    assert len(found) == 5
    assert all(np.isnan(each.cost) for each in found)


def test_a_baseline_is_turned_round_where_it_measures_what_is_better_low(exact):
    def baseline(name, prop, credits, seconds=8.0):
        found = BaselineCredits(name, "", np.asarray(credits, float), {}, seconds, {})
        return StudyBaseline(name, "control", prop, found)

    counted = np.arange(8.0)
    exact.baselines = [
        baseline("images", None, counted),
        baseline("of the loss", "heldout_loss", counted),
        baseline("of colours", "colourfulness", counted),
        baseline("the same for all", None, np.ones(8)),
    ]
    found = {each.name: each for each in exact.contenders("heldout_loss") if not each.recipe}
    assert set(found) == {"images", "of the loss"}
    assert list(found["images"].credits) == list(counted)
    assert list(found["of the loss"].credits) == list(-counted)
    assert found["images"].cost == 2.0
    found = {each.name: each for each in exact.contenders("colourfulness") if not each.recipe}
    assert list(found["of colours"].credits) == list(counted)


def surrogates(weights, properties=("heldout_loss",)):
    """A surrogate that is the game itself: credits corrected by any evaluations are exact."""
    return SimpleNamespace(
        names=("pools", "real_data"),
        ready=lambda: True,
        when_ready=lambda: None,
        standing_in=lambda prop: ["pools"] if prop in properties else [],
        known=lambda prop, coalitions: [KnownSurrogate(coalitions @ weights, weights)] if prop in properties else [],
    )


def test_credits_corrected_by_surrogates_come_first(exact):
    """And a property without a surrogate has none."""
    data = exact
    vars(data.study)["surrogates"] = surrogates(-WEIGHTS)  # F itself of a property that is better low
    first, second = data.contenders("heldout_loss")[:2]
    assert (first.name, first.category, first.evaluations) == ("shapley with pools, sparsified", "shapley", 30)
    assert first.credits == pytest.approx(WEIGHTS, abs=1e-6)
    assert second.name == "shapley, sparsified"
    (alone,) = (each for each in data.contenders("heldout_loss") if each.category == "surrogate")
    assert (alone.name, alone.recipe, alone.evaluations) == ("surrogate pools", "", 0)
    assert list(alone.credits) == list(WEIGHTS)
    found = data.contenders("colourfulness")
    assert found[0].name == "shapley, sparsified"
    assert "surrogate" not in {each.category for each in found}


def test_corrected_credits_do_not_rest_on_truth(data):
    """A study that was run before its file spoke of validation has evaluated some of its coalitions, here with other
    values."""
    met, endpoints = [*tasks_of(make_design("uniform", 0), 8, 30)], data.design(data.study.recipe).tasks[:2]
    truth = {task.coalition for task in data.truth().tasks}
    record(data.study.recipe, [*endpoints, *(task for task in met if task.coalition not in truth)], GAMES)
    far = {"colourfulness": lambda coalition: 1000.0}
    record(data.study.recipe, [task for task in met if task.coalition in truth], far)
    vars(data.study)["surrogates"] = surrogates(np.arange(8.0), ["colourfulness"])
    with pytest.warns(DiffcreditWarning, match="coalitions that are truth's"):
        first = data.contenders("colourfulness")[0]
    assert first.name == "shapley with pools, sparsified"
    assert first.credits == pytest.approx(WEIGHTS, abs=1e-6)


def test_a_property_without_corrected_credits_has_its_other_contenders(data):
    tasks = data.design(data.study.recipe).tasks
    record(data.study.recipe, tasks, GAMES)
    with data.study.ledger() as ledger:
        ledger.register_property("tiny", PropertyRecord("heldout_loss", {"name": "heldout_loss"}, False))
    vars(data.study)["surrogates"] = surrogates(WEIGHTS)
    assert [each.name for each in data.contenders("heldout_loss")] == ["surrogate pools"]


@pytest.mark.parametrize(
    ("names", "seconds", "evaluations"),
    [
        # 2 s an evaluation, a quarter of it sampling; 8 contributors, 20 coalitions of a table, 30 of the design
        (["pools"], {"training": 1.5, "sampling": 0.5}, 8),
        (["soup"], {"training": 1.5, "sampling": 0.5}, (8 * 1.5 + (1 + 20 + 30) * 0.5) / 2),
        (["pools", "soup"], {"training": 1.5, "sampling": 0.5}, (8 * 1.5 + (8 + 1 + 20 + 30) * 0.5) / 2),
        (["real_data"], {"training": 1.5, "sampling": 0.5}, 0),
        (["pools", "real_data"], {}, 8),
    ],
)
def test_what_surrogates_cost_in_evaluations(tmp_path, names, seconds, evaluations):
    some = [{"name": name, "coalitions": 20} for name in ("pools", "soup", "real_data")]
    data = ValidationData(Study.load(validated(tmp_path, {"surrogates": some})), baselines=[])
    record(data.study.recipe, data.design(data.study.recipe).tasks, GAMES, seconds=seconds)
    game = data.game(data.study.recipe, "colourfulness")
    assert surrogacy._price(data, game, names) == pytest.approx(evaluations)


# Designs.
@pytest.mark.parametrize(
    ("distribution", "first", "evaluations"),
    [
        ("leave-one-out", "leave-one-out, sparsified", 8),
        ("add-one-in", "add-one-in, sparsified", 8),
        ("subset(0.25)", "datamodel, sparsified", 30),
        ("half", "shapley, sparsified", 30),
    ],
)
def test_the_first_is_what_the_studys_design_is_for(tmp_path, distribution, first, evaluations):
    """A finite design has no more than all of its coalitions, however many validation asks for."""
    changes = {"design": {"distribution": distribution, "full_replicates": 1}, "stop": {"evaluations": evaluations}}
    data = planted(tmp_path, {**changes, "validation": {**VALIDATION, "evaluations": 30}})
    data.baselines = []
    assert data.evaluations == evaluations
    found = data.contenders("colourfulness")
    assert found[0].name == first
    assert len({each.name for each in found}) == len(found)
    if distribution in ("leave-one-out", "add-one-in"):
        kinds = {distribution, "leave-one-out"}
        assert {each.name for each in found} == {
            f"{kind}, {by}" for kind in kinds for by in ("sparsified", "from_scratch")
        }
        assert found[0].credits == pytest.approx(WEIGHTS)
    assert [f"{each.method}, sparsified" for each in data.study.credits().values()] == [first] * 2


# What cannot be.
def test_nothing_is_evaluated_yet(data):
    with pytest.raises(UserError, match="nothing is evaluated yet; diffcredit run comes first"):
        _ = data.properties


def test_another_study_in_the_same_ledger(data, tmp_path):
    record(data.study.recipe, data.design(data.study.recipe).tasks[:3], GAMES)
    other = ValidationData(Study.load(validated(tmp_path, {"name": "other"})))
    with pytest.raises(UserError, match="nothing is evaluated yet"):
        _ = other.properties


def test_a_ledger_of_other_contributors(data, tmp_path):
    record(data.study.recipe, data.design(data.study.recipe).tasks, GAMES)
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
        ({"retraining": {"method": "from_scratch"}}, False),
    ],
)
def test_truth_shares_its_name_with_no_other_settings(tmp_path, changes, refused):
    study = Study.load(validated(tmp_path, changes))
    if refused:
        with pytest.raises(UserError, match="'from_scratch' is the name of the models that are retrained as truth"):
            ValidationData(study)
    else:
        assert ValidationData(study).scratch.name == "from_scratch"


# What is evaluated.
def test_what_a_part_asks_for(data):
    n = len(NAMES)
    left = data.leave_one_out(data.study.recipe).tasks
    assert [task.coalition for task in left[2:]] == [encode(row) for row in ~np.eye(n, dtype=bool)]
    own, keeping = unlearning.work(data)
    assert (keeping.recipe.name, keeping.recipe.keep) == ("from_scratch", "images")
    assert len(keeping.tasks) == 2 * len({task.coalition for task in keeping.tasks})
    assert [each.coalition for each in keeping.tasks[: len(keeping.tasks) // 2]] == [
        each.coalition for each in own.tasks
    ]
    truth = {task.key for task in data.truth().tasks}
    assert not truth & {task.key for task in keeping.tasks}


@pytest.mark.parametrize("n", [2, 3])
def test_few_contributors(tmp_path, n):
    data = planted(tmp_path, names=NAMES[:n])
    data.baselines = []
    assert data.truth().tasks == []
    assert unlearning.work(data)[0].tasks
    found = {each.name: each for each in data.contenders("colourfulness")}
    assert found["leave-one-out, sparsified"].credits == pytest.approx(WEIGHTS[:n])
