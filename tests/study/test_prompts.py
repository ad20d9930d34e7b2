"""A text-to-image study with properties for some prompts: values, ledger, later measuring, plan and report."""

import copy
import dataclasses
import shutil

import numpy as np
import pytest

from diffcredit.diffusion.generating import generate
from diffcredit.errors import UserError
from diffcredit.execution import InProcess, Task
from diffcredit.execution.threads import limited_threads
from diffcredit.features.extractors import Extractors
from diffcredit.ledger import PropertyRecord
from diffcredit.properties.colourfulness import colourfulness
from diffcredit.retraining.soup import ContributorModels
from diffcredit.study.sections import PropertySection
from diffcredit.study.stated import Stated
from diffcredit.study.study import Study
from diffcredit.surrogates.pools import shared_out
from diffusion import tiny_pipelines
from prompted_study import IMAGES, OTHERS, PROPERTIES, SEED, rows_of, write_prompted
from tiny_study import run_here


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    return tiny_pipelines.stable_diffusion(tmp_path_factory.mktemp("sd") / "pipeline")


@pytest.fixture(scope="module")
def made(tmp_path_factory, pipeline):
    folder = tmp_path_factory.mktemp("prompts") / "study"
    with limited_threads(1):
        Study.load(write_prompted(folder, pipeline)).run(InProcess())
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "study")


def kept(study):
    """Each evaluation with its images."""
    found = []
    for each in study.evaluations(status="done"):
        task = Task(each.coalition, each.replicate, each.purpose)
        found.append((each, study.recipe.keeper().find(task, Extractors(), None).images))
    return found


def likeness(generated, real):
    """KID by its definition, with every pair."""
    x, y = (Extractors().extract("layout", images).vectors.astype(float) for images in (generated, real))

    def mean_kernel(one, other, left_out):
        values = [(a @ b / len(a) + 1) ** 3 for i, a in enumerate(one) for j, b in enumerate(other) if left_out(i, j)]
        return np.mean(values)

    within = [mean_kernel(some, some, lambda i, j: i != j) for some in (x, y)]
    return sum(within) - 2 * mean_kernel(x, y, lambda i, j: True)


def test_values_are_those_of_the_images_selected_by_hand(made):
    study = Study.load(made)
    assert [len(rows_of(some)) for some in (["a cat"], OTHERS)] in ([2, 6], [3, 5])
    given = study.contributions
    real = given.images[[caption in OTHERS for caption in given.captions]]
    assert len(real) == 5
    evaluations = kept(study)
    assert len(evaluations) >= 6
    for each, images in evaluations:
        cats, others = images[rows_of(["a cat"])], images[rows_of(OTHERS)]
        assert each.measured["cats"] == colourfulness(cats).mean()
        assert each.measured["others"] == colourfulness(others).mean()
        assert each.measured["colourfulness"] == colourfulness(images).mean()
        assert each.measured["likeness"] == pytest.approx(likeness(others, real), rel=1e-6)
        counts = {value.property: value.images for value in each.values}
        assert counts == {
            "cats": len(cats),
            "others": len(others),
            "likeness": len(others),
            "kinds": len(others),
            "colourfulness": IMAGES,
        }
    assert len({each.measured["cats"] for each, _ in evaluations}) > 3


def test_fitted_references_are_of_the_same_prompts(made):
    """Two clusters of the base model's images for the prompts: their means are those of these images alone."""
    study = Study.load(made)
    others = study.prepared.generated_images()[rows_of(OTHERS)]
    vectors = Extractors().extract("layout", others).vectors.astype(float)
    centres = study.prepared.properties[3].centres
    nearest = ((vectors[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    for kind in (0, 1):
        np.testing.assert_allclose(centres[kind], vectors[nearest == kind].mean(axis=0))


def test_pools_stand_in_for_the_images_of_the_prompts(made):
    study = Study.load(made)
    pools = {}
    with study.ledger(create=False) as ledger:
        for entry in ledger.entries(study.name, "surrogate"):
            pools.setdefault(entry.content["property"], {}).update(entry.content["values"])
    settings, start = study.recipe.retraining.settings, study.recipe.retraining.start
    models = ContributorModels.prepare(study.recipe.retraining.context, start, settings)
    images = [generate(models.model(index), study.config.sampling, often=True) for index in range(3)]
    for name, prompts in (("cats", ["a cat"]), ("others", OTHERS)):
        rows = rows_of(prompts)
        assert len(pools[name]) >= 6
        for text, value in pools[name].items():
            owners = shared_out(np.array([c == "1" for c in text]), np.array([3, 3, 3]), len(rows))
            by_hand = np.stack([images[owner][row] for owner, row in zip(owners, rows, strict=True)])
            # a study samples with its own number of threads, which may round a pixel otherwise
            assert value == pytest.approx(colourfulness(by_hand).mean(), rel=1e-4)


def test_the_ledger_has_the_prompts(made):
    study = Study.load(made)
    with study.ledger(create=False) as ledger:
        settings = {record.name: record.settings for record in ledger.properties(study.name)}
    assert settings["cats"]["prompts"] == ["a cat"]
    assert settings["others"]["prompts"] == sorted(OTHERS)
    assert "prompts" not in settings["colourfulness"]
    assert study.config.sampling.identity.keys() == {
        *("images", "steps", "scheduler", "seed", "batch_size", "guidance", "precision"),
    }


def test_the_order_of_prompts_is_no_change_and_other_prompts_are_one(folder, pipeline):
    def stating(first, *others):
        return Study.load(write_prompted(folder, pipeline, properties=[first, *others]))

    cats, others, *rest = PROPERTIES
    turned = stating(cats, others | {"prompts": OTHERS[::-1]}, *rest)
    turned.check_recorded()
    assert run_here(turned.file) == []
    with pytest.raises(UserError, match=r"property 'cats' changed: prompts\[0\] \"a cat\" → \"a dog\""):
        stating(cats | {"prompts": ["a dog"]}, others, *rest).check_recorded()
    with pytest.raises(UserError, match="property 'cats' changed: prompts "):
        stating({"name": "colourfulness", "as": "cats"}, others, *rest).check_recorded()


def test_prompts_of_a_plug_in_that_does_not_run_here(made):
    """Its options stand as recorded, but the study file says for which prompts it is measured."""
    recorded = PropertyRecord("mine", {"name": "mine:Own", "code": "0", "scale": 2, "prompts": ["a cat"]}, True)

    def stated(**section):
        return Stated(Study.load(made)).property(
            PropertySection.model_validate({"name": "mine:Own"} | section), recorded
        )

    assert stated(prompts=["the sea", "a dog"]) == recorded.settings | {"prompts": ["a dog", "the sea"]}
    assert stated() == {"name": "mine:Own", "code": "0", "scale": 2}


def test_stated_prompts(pipeline, tmp_path):
    """Images follow them, and contributors are credited for them; no caption is among them."""
    stated = ["a mill", "a harbour at dusk"]
    sampling = {"steps": 2, "images": IMAGES, "seed": SEED, "guidance": 2.0, "prompts": stated}
    properties = [{"name": "colourfulness", "as": "mills", "prompts": ["a mill"]}, {"name": "colourfulness"}]
    own = {"sampling": sampling, "properties": properties, "surrogates": [], "stop": {"evaluations": 2}}
    study = Study.load(write_prompted(tmp_path / "study", pipeline, **own))
    run_here(study.file)
    rows = rows_of(["a mill"], stated)
    for each, images in kept(study):
        assert each.measured["mills"] == colourfulness(images[rows]).mean()
    followed = copy.copy(study.prepared.base)
    followed.prompts = tuple(stated)
    plain = dataclasses.replace(study.config.sampling, prompts=None)
    np.testing.assert_array_equal(study.prepared.generated_images(), generate(followed, plain))
    assert not np.array_equal(study.prepared.generated_images(), generate(study.prepared.base, plain))
    with study.ledger(create=False) as ledger:
        (recipe,) = ledger.recipes(study.name)
    assert recipe.settings["sampling"]["prompts"] == stated
