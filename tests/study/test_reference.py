"""What contributors are compared with, and studies with house images from their file to their credits."""

import itertools

import numpy as np
import pytest
import yaml

from diffcredit.diffusion.generating import generate
from diffcredit.errors import UserError
from diffcredit.execution import InProcess, Task
from diffcredit.execution.threads import limited_threads
from diffcredit.ledger import Evaluation, Value
from diffcredit.properties.colourfulness import Colourfulness
from diffcredit.study.config import StudyConfig
from diffcredit.study.crediting import BESIDE, estimate_all
from diffcredit.study.recorded import check_recorded
from diffcredit.study.reevaluate import recompute
from diffcredit.study.reference import reference_of
from diffcredit.study.schedule import endpoints
from diffcredit.study.study import Study
from diffcredit.util.seeds import derive_seed
from guards.made_up import write_models
from tiny_study import CONFIG, changed, images_of, run_here, write_small, write_study

HOUSE, CHECKPOINT = {"contributions.house": ["ann"]}, {"model.pretrained": "here", "model.preset": None}
ADAPTER = CHECKPOINT | {"model.family": "lora"}
UNTRAINED, PRETRAINED = Task("000", 3_000_000, "reference"), Task("000", 3_000_001, "reference")
EMPTY, ALL = (1.0, 2.0, 6.0), (4.0, 9.0)
OWN = {UNTRAINED: 50.0, PRETRAINED: 70.0}
CASES = [  # changes of a study, its own evaluation, the value and the words of its reference
    ({}, None, 1.0, "the untrained network"),
    (HOUSE, None, 3.0, "the model of the house images alone"),
    (HOUSE | {"reference": "untrained"}, UNTRAINED, 50.0, "the untrained network"),
    (HOUSE | CHECKPOINT | {"reference": "pretrained"}, PRETRAINED, 70.0, "the pretrained model as it came"),
    (HOUSE | {"reference": {"quality": -2.5}}, None, -2.5, "the value stated in the study file"),
    ({"reference": {"quality": 4}}, None, 4.0, "the value stated in the study file"),
    (CHECKPOINT | {"reference": "pretrained"}, PRETRAINED, 70.0, "the pretrained model as it came"),
    (ADAPTER | {"reference": "pretrained"}, None, 1.0, "the pipeline without an adapter"),
    (HOUSE | ADAPTER | {"reference": "untrained"}, UNTRAINED, 50.0, "the pipeline without an adapter"),
]


def config(changes):
    same = {"properties": ["quality"], "design": {"distribution": "exhaustive", "full_replicates": 2}}
    return StudyConfig.model_validate(changed(CONFIG, same | changes))


def evaluation(task, value):
    about, done = (task.coalition, task.replicate, task.purpose), ("done", (Value("quality", value, None, 1, None),))
    return Evaluation(*about, *done, None, {}, {}, "worker", "", "")


def evaluations():
    """All coalitions of three contributors, with interactions; both endpoints with replicates; both references."""
    rng = np.random.default_rng(3)
    inner = ["".join(each) for each in itertools.product("01", repeat=3)][1:-1]
    tasks = {Task(each, 0, "estimate"): float(value) for each, value in zip(inner, rng.normal(size=6), strict=True)}
    tasks |= {Task("000", seed, "endpoint"): value for seed, value in enumerate(EMPTY)}
    tasks |= {Task("111", seed, "endpoint"): value for seed, value in enumerate(ALL)}
    return [evaluation(task, value) for task, value in (tasks | OWN).items()]


def credits_of(changes, method):
    found, reasons = estimate_all(evaluations(), ["quality"], config(changes), method)
    assert not reasons
    return found["quality"]


@pytest.mark.parametrize("method", ["shapley", "unshrunk", "exact", "kernelshap", "permutation"])
def test_credits_sum_to_the_distance_from_the_reference(method):
    helps = {}
    for changes, own, value, words in CASES:
        reference, credits = reference_of(config(changes)), credits_of(changes, method)
        assert (reference.words, reference.tasks(3)) == (words, [own] if own else [])
        assert (credits.empty, credits.full) == (value, 6.5)
        assert credits.values.sum() == pytest.approx(6.5 - value, rel=1e-12)
        helps.setdefault(reference.has_house or method in ("shapley", "unshrunk", "exact"), []).append(
            credits.values - credits.values.mean()
        )
        assert credits.low == pytest.approx(2 * credits.values - credits.high, rel=1e-9)
    for some in helps.values():  # the empty coalition is another game's where there are house images
        np.testing.assert_allclose(some, [some[0]] * len(some), atol=1e-9)


def test_methods_without_a_sum_are_about_the_game_alone():
    for method in BESIDE:
        if method not in ("datamodel", "datamodel-lasso"):  # these need sizes of one kind
            first, *others = [
                credits_of(changes, method).values for changes, *_ in CASES if changes.keys() >= HOUSE.keys()
            ]
            for other in others:
                np.testing.assert_array_equal(other, first)


def test_a_reference_that_is_not_evaluated_yet():
    only = [each for each in evaluations() if each.purpose != "reference"]
    found, reasons = estimate_all(only, ["quality"], config(HOUSE | {"reference": "untrained"}))
    assert found == {}
    assert reasons == {"quality": "reference: the untrained network is not evaluated yet; diffcredit run does that"}
    _, reasons = estimate_all(only, ["another"], config({"reference": {"quality": 4}}))
    assert reasons == {"another": "reference: no number is stated for another"}


@pytest.mark.parametrize(("changes", "own"), [case[:2] for case in CASES])
def test_endpoints(changes, own):
    nobody = 2 if "contributions.house" in changes else 1
    expected = [Task("000", seed, "endpoint") for seed in range(nobody)]
    expected += [Task("111", seed, "endpoint") for seed in range(2)]
    assert endpoints(config(changes), 3) == expected + ([own] if own else [])


# Whole studies

THREE = {"design": {"full_replicates": 3}, "stop.evaluations": 6, "properties": ["colourfulness"]}


def changed_file(folder, **changes):
    file = folder / "study.yaml"
    content = changed(yaml.safe_load(file.read_text(encoding="utf-8")), changes)
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return Study.load(file)


def measured(model, study):
    with limited_threads(1):
        return Colourfulness().measure(generate(model, study.config.sampling, often=True))


def values_of(study, coalition, purpose):
    found = [each for each in study.evaluations() if (each.coalition, each.purpose) == (coalition, purpose)]
    return [each.measured["colourfulness"] for each in sorted(found, key=lambda each: each.replicate)]


def helps(study):
    credits = study.credits()["colourfulness"]
    return credits.values - credits.values.mean(), credits


@pytest.mark.filterwarnings("ignore::diffcredit.errors.DiffcreditWarning")
def test_a_study_with_house_images(tmp_path):
    """Every reference in turn: none costs a coalition, and none changes the recipe or anybody's help."""
    retraining = {"method": "sparsified", "recover_steps": 2, "steps": 1}
    images_of(tmp_path / "ours", ["of us"], each=5)
    file = write_small(tmp_path, THREE | {"contributions.house": "ours", "retraining": retraining})
    assert len(run_here(file)) == 3 + 3 + 6
    study = Study.load(file)
    nobody, everybody = (values_of(study, member * 3, "endpoint") for member in "01")
    assert len(set(nobody)) == len(set(everybody)) == 3, "trained, each with another seed"
    first, credits = helps(study)
    assert credits.values.sum() == pytest.approx(np.mean(everybody) - np.mean(nobody))
    recipe = study.recipe.settings
    assert recipe["data"]["images"] == {"ada": 6, "bob": 6, "cem": 6}
    assert recipe["data"]["house"] == 5
    study = changed_file(tmp_path, reference="untrained")
    with pytest.raises(
        UserError, match=r'reference \(absent\) → "untrained" \(in the ledger → stated now\).* run enter'
    ):
        study.credits()
    assert [each.key for each in run_here(file)] == [("000", 3_000_000)]
    untrained = study.recipe.retraining.start.untrained(derive_seed(0, "untrained"))
    assert values_of(study, "000", "reference") == [measured(untrained, study)]
    again, credits = helps(study)
    assert credits.empty == measured(untrained, study)
    np.testing.assert_allclose(again, first, atol=1e-9)
    study = changed_file(tmp_path, reference={"colourfulness": 12})
    assert run_here(file) == []
    again, credits = helps(study)
    assert credits.values.sum() == pytest.approx(np.mean(everybody) - 12)
    np.testing.assert_allclose(again, first, atol=1e-9)
    assert study.recipe.settings == recipe
    assert study.status().endpoints == 6
    with limited_threads(1):
        repeated = list(recompute(study, InProcess(), 100))
    assert len(repeated) == 13, "the reference too"
    (tmp_path / "images").rename(tmp_path / "elsewhere")
    check_recorded(Study.load(file), pixels=False)
    study = changed_file(tmp_path, **{"contributions.house": None})
    with pytest.raises(UserError, match="the ledger's evaluations are with 5 house images; restore it"):
        check_recorded(study, pixels=False)
    assert all(each.agrees for each in repeated)


@pytest.mark.filterwarnings("ignore::diffcredit.errors.DiffcreditWarning")
@pytest.mark.parametrize("family", ["lora", "latent"])
def test_a_pretrained_model_as_reference(family, tmp_path):
    """On text-to-image and latent models; the pipeline's adapter starts at zero."""
    write_models(tmp_path)
    images_of(tmp_path / "images", ["ada", "bob", "cem", "dan"])
    folder = "text" if family == "lora" else "latent"
    model = {"family": family, "pretrained": folder, "train": CONFIG["model"]["train"]}
    model |= {"prompt": "an icon"} if family == "lora" else {}
    small = {"contributions": {"path": "images", "resolution": 16, "house": ["cem"]}, "model": model}
    small |= THREE | {"reference": "pretrained", "retraining": {"method": "fine_tune", "steps": 1}}
    study = Study.load(write_study(tmp_path, small))
    assert len(run_here(study.file)) == 3 + 3 + 1 + 6
    with limited_threads(1):
        start = study.prepared.family.start(study.contributions, 99)
    assert values_of(study, "000", "reference") == [measured(start, study)]
    assert study.credits()["colourfulness"].empty == measured(start, study)
    assert study.contributions.contributors == ("ada", "bob", "dan")
