"""Commands on a text-to-image study whose properties are measured for some prompts."""

import json
import shutil

import numpy as np
import pytest
import yaml

from diffcredit.execution import InProcess
from diffcredit.execution.threads import limited_threads
from diffcredit.features.extractors import Extractors
from diffcredit.study.study import Study
from diffusion import tiny_pipelines
from prompted_study import IMAGES, OTHERS, PROPERTIES, rows_of, write_prompted
from tiny_study import recorded_values, write_small


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    return tiny_pipelines.stable_diffusion(tmp_path_factory.mktemp("sd") / "pipeline")


@pytest.fixture(scope="module")
def made(tmp_path_factory, pipeline):
    """A study that measured the first property from the start."""
    folder = tmp_path_factory.mktemp("prompts") / "study"
    properties = [PROPERTIES[0], PROPERTIES[-1]]
    with limited_threads(1):
        Study.load(write_prompted(folder, pipeline, properties=properties, surrogates=[])).run(InProcess())
    return folder


@pytest.fixture(scope="module")
def from_the_start(tmp_path_factory, pipeline):
    folder = tmp_path_factory.mktemp("start") / "study"
    with limited_threads(1):
        Study.load(write_prompted(folder, pipeline, surrogates=[])).run(InProcess())
    return recorded_values(folder)


def labelled(folder):
    """Changes to a study: a model conditioned by the classes 3, 7 and 12 of the images in an npz."""
    images = np.random.default_rng(0).integers(0, 256, (18, 16, 16, 3), dtype=np.uint8)
    owner, kind = np.repeat([1, 2, 3], 6), np.tile([3, 12, 7], 6)
    np.savez(folder / "mine.npz", images=images, artist=owner, kind=kind)
    return {
        "contributions": {
            "path": str(folder / "mine.npz"),
            "source": "npz",
            "contributor": "artist",
            "caption": "kind",
        },
        "model.conditions": "labels",
        "contributions.resolution": 16,
    }


def test_a_property_for_one_class(diffcredit, tmp_path):
    """Its training images are those of the class: kid compares with six of eighteen."""
    likeness = {"name": "kid", "features": "layout", "as": "sevens", "prompts": ["7"]}
    changes = {"properties": ["colourfulness", likeness], "sampling.images": 9, "keep": "images"}
    file = write_small(tmp_path / "study", labelled(tmp_path) | changes)
    diffcredit.printed("run", file, warned=True)
    study = Study.load(file)
    prop = study.prepared.properties[1]
    images = study.contributions.images[[caption == "7" for caption in study.contributions.captions]]
    assert len(images) == 6
    np.testing.assert_array_equal(prop.whole.vectors, Extractors().extract("layout", images).vectors)
    assert {value.images for each in study.evaluations(status="done") for value in each.values} == {3, 9}


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "study")


@pytest.mark.parametrize("index", [1, 2, 3])
def test_a_property_for_prompts_added_later_has_the_values_of_one_from_the_start(
    diffcredit, folder, from_the_start, index
):
    added = PROPERTIES[index]
    diffcredit.printed("measure", folder, "--property", yaml.safe_dump(added, default_flow_style=True), warned=True)
    assert yaml.safe_load((folder / "study.yaml").read_text())["properties"][-1] == added
    found = {key: value for key, value in recorded_values(folder).items() if key[-1] == added["as"]}
    assert len(found) >= 6
    assert found == {key: from_the_start[key] for key in found}
    report = (folder / "results" / "report.html").read_text()
    count = len(rows_of(OTHERS))
    assert (
        f"{added['as']}: measured on {count} of the {IMAGES} images of each evaluation, those generated for" in report
    )
    assert "“the sea”, “a dog”" in report or "“a dog”, “the sea”" in report


def test_a_prompt_that_no_image_is_generated_for(diffcredit, folder):
    before = (folder / "study.yaml").read_text()
    mill = "{name: colourfulness, as: mills, prompts: [a mill]}"
    said = diffcredit.refused("measure", folder, "--property", mill)
    assert "properties.2: prompts: none of the 8 images is generated for 'a mill'; accepted: 'a " in said
    assert (folder / "study.yaml").read_text() == before


def test_plan_says_how_many_images_count(diffcredit, folder):
    out = diffcredit.printed("plan", folder, warned=True)
    assert f"cats: measured on {len(rows_of(['a cat']))} of the {IMAGES} images, those for its prompts." in out
    assert "Not timed" not in out


def test_baselines_measure_what_has_no_seeds_only_without_prompts(diffcredit, folder):
    """A contributor's training images are no seeds' images, but any set will do; captions' images would be mixed."""
    both = {"cats", "colourfulness"}
    for name, properties in {"training_property": both, "conditional_sampling": {"colourfulness"}}.items():
        diffcredit.printed("baselines", folder, "--method", name, warned=True)
        files = (folder / "results" / "baselines").glob(f"{name}-*.json")
        assert {json.loads(file.read_text())["property"] for file in files} == properties


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "properties.0.prompts: [] is not accepted; a list of at least one text is accepted"),
        (["a", "a"], "properties.0.prompts: ['a', 'a'] is not accepted; the prompt 'a' is there twice"),
        ([3], "properties.0.prompts: [3] is not accepted; the prompt 3: texts that are not empty are accepted"),
        (["3"], "properties.0: prompts: the model follows no prompts; leave them out"),
    ],
)
def test_prompts_that_a_study_cannot_have(diffcredit, tmp_path, prompts, message):
    file = write_small(tmp_path, {"properties": [{"name": "colourfulness", "prompts": prompts}]})
    assert f"{file}: {message}" in diffcredit.refused("run", file)


def test_stated_prompts_for_a_model_that_follows_none(diffcredit, tmp_path):
    file = write_small(tmp_path, {"sampling.prompts": ["a mill"]})
    said = diffcredit.refused("run", file)
    assert f"{file}: sampling.prompts: the model follows no prompts; leave them out" in said


def test_stated_prompts_that_are_no_class(diffcredit, tmp_path):
    file = write_small(tmp_path / "study", labelled(tmp_path) | {"sampling.prompts": ["7", "10"]})
    said = diffcredit.refused("run", file)
    assert f"{file}: sampling.prompts: the label '10' is unknown; the model's 3 classes: 12, 3, 7" in said


def test_a_reference_without_images_of_the_prompts(diffcredit, tmp_path, pipeline):
    properties = [{"name": "coverage", "features": "layout", "prompts": ["the sea"]}]
    file = write_prompted(tmp_path / "study", pipeline, properties=properties)
    said = diffcredit.refused("run", file)
    assert "properties.0: reference: 2 images in 'contributions'; at least 6 are needed (for its prompts there" in said
    assert "2 of 9 training images" in said
