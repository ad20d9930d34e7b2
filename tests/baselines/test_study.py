"""A study's baselines: models trained as the base model was, a row for each setting, and what is kept of them."""

import json
import shutil

import numpy as np
import pytest
import torch

from diffcredit.baselines import BASELINES, aggregate
from diffcredit.baselines.selection import build_baselines, expected_seconds, possible_baselines, promised_evidence
from diffcredit.baselines.study import kept_baselines, run_baselines, study_evidence
from diffcredit.baselines.trak import TRAK
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.training import train
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.report.baselines import agreement, compared
from diffcredit.study.study import Study
from diffcredit.util.artifacts import canonical_json
from diffcredit.util.seeds import derive_seed
from diffusion import tiny_pipelines
from tiny_study import images_of, write_study

TINY_TRAK = {"name": "trak", "time_steps": 1, "dimensions": 16, "layers": ["conv_out"]}
SMALL = {"contributions": {"path": "images", "resolution": 16}, "properties": [{"name": "colourfulness"}]}
COUNTED = """
import numpy as np


class Counted:
    name, title, category = "counted", "Counted", "control"

    def __init__(self, scale=1.0):
        self._kept_elsewhere = scale

    def credits(self, evidence):
        return self._kept_elsewhere * np.arange(evidence.contributions.n, dtype=float)
"""
DARKNESS = """
class Light:
    def measure(self, images):
        return float(images.mean())


class Dark:
    higher_is_better = False

    def measure(self, images):
        return -float(images.mean())
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The folder of a study with a base model after two steps of training, its images, and no evaluation."""
    folder = tmp_path_factory.mktemp("prepared")
    images_of(folder / "images", ["ada", "bob", "cem"])
    study_evidence(Study.load(write_study(folder, SMALL)))
    return folder


@pytest.fixture
def study(prepared, tmp_path):
    """A copy of it."""
    return Study.load(shutil.copytree(prepared, tmp_path / "study") / "study.yaml")


def test_a_replicate_is_trained_as_the_base_model_was_with_other_seeds(study):
    replicate = study_evidence(study).model("trak", 2)
    by_hand = DDPM.create("tiny", 16, derive_seed(0, "base", 2))
    data = by_hand.encode(study.contributions.images)
    train(by_hand, data, study.config.model.train, seed=derive_seed(0, "train", 2))
    torch.testing.assert_close(replicate.network.state_dict(), by_hand.network.state_dict())
    weights = [each.network.conv_out.weight.detach() for each in (replicate, study.prepared.base)]
    assert (weights[0] - weights[1]).abs().max() > 1e-3


def test_scores_of_two_models_are_their_mean_and_the_second_is_trained_once(study):
    told = set()
    study.progress = lambda what, done, total: told.add(what)
    found = {each.found.how: each.found for each in run_baselines(study, [{**TINY_TRAK, "models": 2}])}
    assert "training replicate 1 of the base model" in told
    assert found["sum"].name == 'trak (sum, dimensions=16, layers=["conv_out"], models=2, time_steps=1)'
    assert set(found["sum"].chosen) == {"lambda", "lambda[1]"}
    folders = sorted(path.name for path in (study.folder / "models").iterdir() if path.is_dir())
    assert [name.rpartition("-")[0] for name in folders] == ["base", "replicate-1"]
    # each model in the place of the only one
    options, evidence, alone = {key: TINY_TRAK[key] for key in TINY_TRAK if key != "name"}, study_evidence(study), []
    for folder in folders:
        model = DDPM.load(study.folder / "models" / folder)
        only = type(evidence)(study.contributions, evidence.generated, load_model=lambda model=model: model)
        alone.append(TRAK(**options).scores(only))
    expected = aggregate(np.mean(alone, axis=0), study.contributions, "sum")
    np.testing.assert_allclose(found["sum"].credits, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())
    told.clear()
    run_baselines(study, [{**TINY_TRAK, "models": 2, "lam": 0.5}])
    assert not {what for what in told if what.startswith("training")}
    assert not {what for what in told if "gradients of" in what}  # each model's are kept


def test_a_base_model_that_came_trained_has_no_replicates(tmp_path):
    tiny_pipelines.unet(sample_size=16).save_pretrained(tmp_path / "my-unet")
    images_of(tmp_path / "images", ["ada", "bob", "cem"])
    file = write_study(tmp_path, {**SMALL, "model.preset": None, "model.pretrained": "my-unet"})
    with pytest.raises(UserError, match=r"study.yaml: trak: models: more than 1 .*; 1 is accepted"):
        run_baselines(Study.load(file), [{**TINY_TRAK, "models": 2}])


def test_all_that_cannot_apply_is_named_before_anything_is_trained_or_computed(tmp_path):
    images_of(tmp_path / "images", ["ada", "bob", "cem"])
    (tmp_path / "counted.py").write_text(COUNTED)
    changes = {"contributions": {**SMALL["contributions"], "holdout": 0.2}, "properties": [{"name": "heldout_loss"}]}
    study, told = Study.load(write_study(tmp_path, {**SMALL, **changes})), set()
    study.progress = lambda what, done, total: told.add(what)
    wanted = ["image_count", "training_property", "conditional_sampling", "application_scores", "counted:Counted"]
    options = {"cluster_distance": {"clusters": 99}, "trak": {"dimensions": 10**9}, "das": {"layers": ["nowhere"]}}
    with pytest.raises(UserError) as refused:
        run_baselines(study, [{"name": name, **options.get(name, {})} for name in [*wanted, *options]])
    said = str(refused.value)
    reasons = ("heldout_loss' measures the model itself", "follows no text", "on a single image", "99 clusters of 4")
    for reason in (*reasons, "gradients have", "no trainable parameter's name contains"):
        assert reason in said
    assert ("counted" in said, "image_count" in said, said.count("\n")) == (False, False, 0)
    assert told == {"checking the baselines"}
    assert not list(study.folder.rglob("*.safetensors"))
    with pytest.warns(DiffcreditWarning, match="left out") as warned:
        possible = possible_baselines(study)
    left = {str(each.message).partition(":")[0] for each in warned}
    assert left == {"training_property", "conditional_sampling", "application_scores", "cluster_distance"}
    assert [name for name, _, _ in possible] == [name for name in BASELINES if name not in left]


def test_steps_that_methods_share_are_expected_once(prepared):
    study = Study.load(prepared)

    def steps(*names):
        built = build_baselines(study, [{**TINY_TRAK, "name": name} for name in names])
        return {key: each for _, _, one in built for key, each in one.seconds(promised_evidence(study), 2.0).items()}

    images = len(study.contributions.images) + study.config.sampling.images
    assert sum(steps("trak").values()) == 3 * 2.0 * images  # a single gradient costs three passes
    assert steps("trak", "gradient_similarity") == steps("trak")
    assert len(steps("trak", "d_trak")) == 4
    assert expected_seconds(study, build_baselines(study, [{"name": "image_count"}])) == 0
    assert expected_seconds(study, build_baselines(study, [{"name": "patch_similarity"}])) > 0


def test_each_setting_of_a_method_is_a_row(study):
    asked = [{"name": "cluster_distance", "clusters": count} for count in (2, 3)]
    asked += [{"name": "patch_similarity", "size": 4, **more} for more in ({}, {"patch": 7}, {"patch": 3})]
    run_baselines(study, asked)
    found = kept_baselines(study)
    names = [each.found.name for each in found if each.found.how == "mean"]
    assert names == [
        "cluster_distance (mean, clusters=2)",
        "cluster_distance (mean, clusters=3)",
        "patch_similarity (mean, patch=3, size=4)",
        "patch_similarity (mean, size=4)",  # a patch of 7 is the default
    ]
    assert [row.name for row in compared(found, {})] == list(agreement(found).names) == [e.found.name for e in found]
    credits = {each.found.name: each.found.credits for each in found}
    assert (credits[names[0]] != credits[names[1]]).any()


def test_what_a_method_without_fields_was_asked_for_is_told(study):
    (study.file.parent / "plain_plug_in.py").write_text(COUNTED)
    asked = [{"name": "plain_plug_in:Counted", **options} for options in ({}, {"scale": 1.0}, {"scale": 2.0})]
    run_baselines(study, asked)
    rows = {each.found.name: each.found.credits[1] for each in kept_baselines(study)}
    assert rows == {"plain_plug_in:Counted": 1.0, "plain_plug_in:Counted (scale=2.0)": 2.0}


def test_a_plug_in_with_the_name_of_another_method_has_a_row_of_its_own(study):
    folder = study.file.parent
    (folder / "copied_plug_in.py").write_text(COUNTED.replace('"counted"', '"image_count"'))
    (folder / "other_plug_in.py").write_text(COUNTED.replace('"counted"', '"image_count"'))
    names = ["image_count", "copied_plug_in:Counted", "other_plug_in:Counted"]
    found = run_baselines(study, [{"name": name} for name in names])
    assert [each.found.name for each in found] == [each.found.name for each in kept_baselines(study)] == names
    assert [row.name for row in compared(found, {})] == names
    np.testing.assert_array_equal([each.found.credits for each in found], [[6, 6, 6], [0, 1, 2], [0, 1, 2]])


def test_a_program_that_changed_replaces_its_row(study):
    plug_in = study.file.parent / "counted_plug_in.py"
    plug_in.write_text(COUNTED)
    asked = [{"name": "counted_plug_in:Counted", "scale": 2.0}]
    (first,) = run_baselines(study, asked)
    (file,) = (study.folder / "baselines").glob("Counted-*.json")
    kept = json.loads(file.read_text())
    kept["rows"][0]["credits"][0] = 99.0
    file.write_text(json.dumps(kept))
    assert run_baselines(study, asked)[0].found.credits[0] == 99.0  # found again, not computed
    plug_in.write_text(COUNTED + "# another program\n")
    (second,) = run_baselines(study, asked)
    np.testing.assert_array_equal(second.found.credits, first.found.credits)
    assert [each.found.name for each in kept_baselines(study)] == ["counted_plug_in:Counted (scale=2.0)"]


def test_what_an_earlier_version_kept_is_computed_anew(study):
    run_baselines(study, [{"name": "image_count"}])
    (file,) = (study.folder / "baselines").glob("image_count-*.json")
    old = {key: value for key, value in json.loads(file.read_text()).items() if key not in ("options", "method")}
    (file.parent / "image_count-0123456789ab.json").write_text(json.dumps(old))
    assert len(kept_baselines(study)) == 1
    file.unlink()
    assert kept_baselines(study) == []
    (found,) = run_baselines(study, [{"name": "image_count"}])
    np.testing.assert_array_equal(found.found.credits, study.contributions.counts)


DAMAGE = {
    "nothing": lambda content: "",
    "half": lambda content: canonical_json(content)[:99],
    "a list": lambda content: "[]",
    "too few": lambda content: canonical_json({**content, "rows": [{**content["rows"][0], "credits": [1.0]}]}),
    "no number": lambda content: canonical_json({**content, "rows": [{**content["rows"][0], "credits": ["x"] * 3}]}),
    "another row": lambda content: canonical_json({**content, "rows": [{}]}),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=list(DAMAGE))
def test_a_damaged_file_is_left_out_and_computed_anew(study, damage):
    asked = [{"name": "image_count"}]
    run_baselines(study, asked)
    (file,) = (study.folder / "baselines").glob("image_count-*.json")
    file.write_text(damage(json.loads(file.read_text())))
    with pytest.warns(DiffcreditWarning, match=f"{file}: damaged"):
        assert kept_baselines(study) == []
    with pytest.warns(DiffcreditWarning, match=f"{file}: damaged"):
        (found,) = run_baselines(study, asked)
    np.testing.assert_array_equal(found.found.credits, study.contributions.counts)
    assert [each.found.name for each in kept_baselines(study)] == ["image_count"]


@pytest.mark.parametrize("asked", [[], [{"name": "image_count"}]])
@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ([{"name": "colorfulness"}], "properties.0: 'colorfulness' is unknown"),
        ([{"name": "fid", "features": "colours"}], "properties.0: fid: 4 images for features of 64 dimensions"),
    ],
)
def test_a_mistake_in_the_study_stops_all_methods_before_a_model_is_trained(tmp_path, asked, properties, said):
    images_of(tmp_path / "images", ["ada", "bob", "cem"])
    study = Study.load(write_study(tmp_path, {**SMALL, "properties": properties}))
    with pytest.raises(UserError, match=said) as refused:
        run_baselines(study, asked)
    assert str(refused.value).count(str(study.file)) == 1
    assert not (study.folder / "models").exists()


def test_where_a_method_names_the_study_file_it_is_told_once(study, monkeypatch):
    def mistaken(*_):
        raise UserError(f"{study.file}: sampling: a mistake")

    monkeypatch.setattr("diffcredit.study.prepared.Prepared.replicate", mistaken)
    with pytest.raises(UserError) as refused:
        run_baselines(study, [{**TINY_TRAK, "models": 2}])
    assert str(refused.value) == f"{study.file}: sampling: a mistake"


def test_what_measures_a_property_knows_whether_less_of_it_is_better(tmp_path):
    (tmp_path / "darkness_plug_in.py").write_text(DARKNESS)
    images_of(tmp_path / "images", ["ada", "bob", "cem"])
    properties = [{"name": f"darkness_plug_in:{name}"} for name in ("Light", "Dark")]
    study = Study.load(write_study(tmp_path, {**SMALL, "properties": properties}))
    run_baselines(study, [{"name": "training_property"}])
    light, dark = kept_baselines(study)
    assert (light.property, light.higher_is_better) == ("Light", True)
    assert (dark.property, dark.higher_is_better) == ("Dark", False)
    np.testing.assert_allclose(dark.found.credits, -light.found.credits)
    assert agreement([light, dark]).correlations[0][1] == pytest.approx(1)
