from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from diffcredit.diffusion import Training, checkpoints, training
from diffcredit.diffusion.ddpm import DDPM, LatentDiffusion
from diffcredit.diffusion.first_stage import FirstStage, first_stage
from diffcredit.diffusion.model import Batch
from diffcredit.diffusion.pipeline import pipeline
from diffcredit.diffusion.text_to_image import TextToImageLoRA
from diffcredit.diffusion.training import kept_model, train
from diffcredit.util.progress import silent

from . import tiny, tiny_pipelines
from .tiny_pipelines import contributions

encoded = partial(training.encoded, mirrored=True, progress=silent)
CAPTIONS = ("a cat", "a dog", "a cat", "a bee", "a dog", "a cat")


@pytest.fixture(scope="module")
def latent(kl_folder) -> LatentDiffusion:
    return LatentDiffusion.create("tiny", 16, 0, first_stage(str(kl_folder)))


@pytest.fixture(scope="module")
def text_to_image(sd_folder) -> TextToImageLoRA:
    return TextToImageLoRA.create(pipeline(str(sd_folder)), 2, ["a cat"], None, 16, 0)


def assert_equal(one: Batch, other: Batch) -> None:
    """Bitwise."""
    torch.testing.assert_close(vars(one), vars(other), rtol=0, atol=0)


@pytest.mark.parametrize("mirrored", [True, False])
@pytest.mark.parametrize("which", ["latent", "text_to_image"])
def test_what_is_kept_is_what_the_model_sees(which, mirrored, request, tmp_path, monkeypatch):
    model, given = request.getfixturevalue(which), contributions(captions=CAPTIONS)
    expected = model.encode(given.images, given.captions, mirrored=mirrored)
    told = []
    first = encoded(model, given, tmp_path, mirrored=mirrored, progress=lambda *what: told.append(what))
    assert_equal(first, expected)
    total = 12 if mirrored else 6
    assert told[-1] == ("encoding images", total, total)

    monkeypatch.setattr(type(model), "encode", Mock(side_effect=AssertionError("encoded twice")))
    assert_equal(encoded(model, given, tmp_path, mirrored=mirrored), expected)
    assert len(list(tmp_path.iterdir())) == 1


def test_captions_are_embedded_once_each(text_to_image):
    batch = text_to_image.encode(contributions().images, CAPTIONS)
    assert len(batch.conditions["encoder_hidden_states"]) == 3
    assert batch.condition_of.tolist() == [0, 1, 0, 2, 1, 0]
    some = batch.select(torch.tensor([3, 0]))
    name = "encoder_hidden_states"
    assert some.condition[name].equal(batch.conditions[name][[2, 0]])


def test_pixels_are_not_kept(tmp_path):
    model, given = tiny.model(), contributions(side=tiny.SIDE)
    assert_equal(encoded(model, given, tmp_path), model.encode(given.images))
    assert list(tmp_path.iterdir()) == []


def test_other_images_captions_or_autoencoders_make_another_file(latent, text_to_image, tmp_path):
    tiny_pipelines.autoencoder_kl(seed=5).save_pretrained(tmp_path / "vae")
    other = LatentDiffusion.create("tiny", 16, 0, first_stage(str(tmp_path / "vae")))
    folder = tmp_path / "latents"
    for model, given, mirrored in (
        (latent, contributions(), True),
        (latent, contributions(), False),
        (latent, contributions(seed=1), True),
        (other, contributions(), True),
        (text_to_image, contributions(captions=CAPTIONS), True),
        (text_to_image, contributions(captions=CAPTIONS[::-1]), True),
    ):
        encoded(model, given, folder, mirrored=mirrored)
    assert len(list(folder.iterdir())) == 6
    # the network has no part in it
    encoded(LatentDiffusion.create("tiny", 16, 1, latent.stage), contributions(), folder)
    assert len(list(folder.iterdir())) == 6


@pytest.mark.parametrize("keep", [0, 5, -20])
def test_a_corrupt_file_is_named(latent, tmp_path, keep):
    encoded(latent, contributions(), tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:keep])
    message = r"latents-\w+\.safetensors: not encoded images .*remove it"
    tiny.refused(message, encoded, latent, contributions(), tmp_path)


def test_a_failure_leaves_no_file(latent, tmp_path, monkeypatch):
    monkeypatch.setattr(FirstStage, "encode", Mock(side_effect=RuntimeError("no memory left")))
    with pytest.raises(RuntimeError, match="no memory"):
        encoded(latent, contributions(), tmp_path)
    assert list(tmp_path.iterdir()) == []


# Trained models

SETTINGS = Training(steps=4, batch_size=3)
GIVEN = contributions(side=tiny.SIDE)


def made(folder: Path, start=tiny.model, progress=silent):
    return kept_model(folder, DDPM.load, start, GIVEN, SETTINGS, seed=5, what="training it", progress=progress)


def test_is_trained_once_on_everything_and_found_again(tmp_path):
    expected = tiny.model()
    train(expected, expected.encode(GIVEN.images), SETTINGS, seed=5)
    folder = tmp_path / "models" / "base"
    for start in (tiny.model, Mock(side_effect=AssertionError("a kept model is not made again"))):
        assert made(folder, start).fingerprint == expected.fingerprint
        assert [path.name for path in folder.parent.iterdir()] == ["base"]


def test_goes_on_where_it_was_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", -1.0)
    whole = made(tmp_path / "whole")

    with pytest.raises(tiny.PowerCut):
        made(tmp_path / "cut", progress=lambda what, *at: tiny.cut_at(3)(*at))
    assert not (tmp_path / "cut").exists()
    taken = []
    again = made(tmp_path / "cut", progress=lambda what, done, total: taken.append((what, done, total)))
    assert taken == [("training it", 3, 4), ("training it", 4, 4)]
    assert again.fingerprint == whole.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "whole"]


def test_another_process_that_made_the_same_meanwhile(tmp_path):
    def other_process(what: str, done: int, total: int) -> None:
        if done == total and not (tmp_path / "base").exists():
            other.append(made(tmp_path / "base"))

    other: list[DDPM] = []
    assert made(tmp_path / "base", progress=other_process).fingerprint == other[0].fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["base"]
