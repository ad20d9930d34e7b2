import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from diffusers import LDMPipeline, VQModel

from diffcredit.diffusion.ddpm import LatentDiffusion, LatentFamily
from diffcredit.diffusion.first_stage import FirstStage, first_stage
from diffcredit.execution import InProcess
from diffcredit.execution.threads import limited_threads
from diffcredit.study.study import Study
from tiny_study import files_below, images_of, recorded_values, run_here, write_study

from . import tiny, tiny_pipelines
from .tiny_pipelines import STUDY, contributions, pictures


@pytest.fixture(scope="module")
def stage(kl_folder) -> FirstStage:
    return first_stage(str(kl_folder))


@pytest.fixture(scope="module")
def model(stage) -> LatentDiffusion:
    return LatentDiffusion.create("tiny", 16, 3, stage)


@pytest.fixture(scope="module")
def pretrained(ldm_folder) -> LatentDiffusion:
    return LatentFamily(pretrained=str(ldm_folder)).start(contributions(), seed=0)


def test_samples_are_those_of_diffusers_own_pipeline(ldm_folder, pretrained):
    pipeline = LDMPipeline.from_pretrained(ldm_folder)
    pipeline.set_progress_bar_config(disable=True)
    seeds = [0, 5, 17]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    theirs = pipeline(len(seeds), generator=generators, num_inference_steps=5, output_type="np").images
    ours = pretrained.sample(seeds, 5)
    assert ours.shape == (3, 16, 16, 3)
    assert ours.std() > 5, "images that are all alike would agree with anything"
    assert np.abs(ours - (theirs * 255).round()).max() <= 1


def test_encoding_is_of_the_images_and_of_their_mirror_images(model, stage):
    images, told = pictures(3), []
    batch = model.encode(images, on_image=lambda done, total: told.append((done, total)))
    torch.testing.assert_close(batch.x, stage.encode(images, "cpu"))
    torch.testing.assert_close(batch.flipped, stage.encode(np.flip(images, axis=2), "cpu"))
    assert not torch.allclose(batch.flipped, batch.x.flip(-1), atol=1e-2), "mirrored latents are something else"
    assert told == [(3, 6), (6, 6)]
    assert batch.condition is None
    once = model.encode(images, mirrored=False, on_image=lambda done, total: told.append((done, total)))
    assert once.x.equal(batch.x)
    assert once.flipped.equal(batch.x)
    assert told[2:] == [(3, 3)]


def test_another_autoencoder_is_refused_and_told_apart(model, tmp_path):
    tiny_pipelines.autoencoder_kl(seed=9, scaling_factor=0.4, shift_factor=0.1).save_pretrained(tmp_path / "other")
    other = first_stage(str(tmp_path / "other"))
    assert LatentDiffusion(model.network, model.config, stage=other).fingerprint != model.fingerprint
    model.save(tmp_path / "model")
    message = r"model/config\.json: made with another autoencoder"
    tiny.refused(message, LatentDiffusion.load, tmp_path / "model", other)


def test_resolutions_that_do_not_fit_are_refused(stage):
    for side, message in (
        (17, "17; the autoencoder takes multiples of 2"),
        (20, "20 .*after the autoencoder's 1/2; accepted: multiples of 8"),
    ):
        tiny.refused(f"resolution: {message}", LatentDiffusion.create, "tiny", side, 0, stage)


def test_a_pretrained_model_may_have_another_autoencoder(ldm_folder, pretrained, tmp_path):
    assert isinstance(pretrained.stage.autoencoder, VQModel)
    tiny_pipelines.autoencoder_kl(latent_channels=3).save_pretrained(tmp_path)
    family = LatentFamily(pretrained=str(ldm_folder), autoencoder=str(tmp_path))
    other = family.start(contributions(), seed=0)
    assert other.stage is first_stage(str(tmp_path))
    assert tiny.same(tiny.weights(other), tiny.weights(pretrained))
    assert family.identity() != LatentFamily(pretrained=str(ldm_folder)).identity()


def study(folder: Path, autoencoder: Path) -> Path:
    images_of(folder / "images", ["ann", "bob", "cem"], each=4)
    shutil.copytree(autoencoder, folder / "autoencoder")
    return write_study(folder, STUDY | {"model.family": "latent", "model.autoencoder": "autoencoder"})


def test_a_study(kl_folder, tmp_path, monkeypatch):
    """From a study file to values, the same elsewhere, also when cut off; a second run finds all that was made."""
    file = study(tmp_path / "one", kl_folder)
    made = run_here(file)
    assert [evaluation.status for evaluation in made] == ["done"] * 5
    values = recorded_values(file.parent)
    assert len(values) == 10
    assert None not in values.values()
    assert len(set(values.values())) > 5
    other = study(tmp_path / "two", kl_folder)
    with limited_threads(1):
        for count, _ in enumerate(Study.load(other).evaluate(InProcess()), start=1):
            if count == 2:
                break
    assert len(run_here(other)) == 3
    assert recorded_values(other.parent) == values

    kept = files_below(file.parent / "results" / "models")
    assert len([name for name in kept if name.startswith("latents-")]) == 1
    base = Study.load(file).prepared.base.fingerprint

    monkeypatch.setattr(FirstStage, "encode", Mock(side_effect=AssertionError("the latents are there already")))
    again = Study.load(file)
    assert again.prepared.base.fingerprint == base
    again.recipe.retraining  # noqa: B018 - it takes up the encoded images
    assert files_below(file.parent / "results" / "models") == kept
