from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from diffcredit.diffusion.first_stage import FirstStage, first_stage

from . import tiny, tiny_pipelines
from .tiny_pipelines import pictures

SCALE, SHIFT = 0.4, 0.1


AUTOENCODERS = {
    "AutoencoderKL": partial(tiny_pipelines.autoencoder_kl, shift_factor=SHIFT),
    "AutoencoderTiny": partial(tiny_pipelines.autoencoder_tiny, shift_factor=SHIFT),
    "VQModel": tiny_pipelines.vq_model,
}


@pytest.mark.parametrize("kind", AUTOENCODERS)
def test_latents_and_images_are_the_scaled_ones_of_diffusers(kind, tmp_path):
    theirs = AUTOENCODERS[kind](scaling_factor=SCALE)
    theirs.save_pretrained(tmp_path)
    stage = first_stage(str(tmp_path))
    images = pictures(37)  # more than two batches
    shift = 0 if kind == "VQModel" else SHIFT
    x = torch.from_numpy(images.astype(np.float32) / 127.5 - 1).permute(0, 3, 1, 2)
    told = []
    latents = stage.encode(images, "cpu", told.append)
    assert told == [16, 32, 37]
    with torch.no_grad():
        coded = theirs.encode(x)
        raw = coded.latent_dist.mean if hasattr(coded, "latent_dist") else coded.latents
        decoded = theirs.decode(latents / SCALE + shift).sample
    torch.testing.assert_close(latents, (raw - shift) * SCALE)
    assert (stage.channels, stage.factor) == (latents.shape[1], 16 // latents.shape[2])
    expected = ((decoded.clamp(-1, 1) + 1) * 127.5).permute(0, 2, 3, 1).numpy()
    found = stage.decode(latents)
    assert found.dtype == np.uint8
    assert found.std() > 1
    assert np.abs(found - expected).max() <= 0.5 + 1e-2
    assert not any(parameter.requires_grad for parameter in stage.autoencoder.parameters())
    assert not stage.autoencoder.training


class Spy(nn.Module):
    """An autoencoder that halves sides, and notes where it is sent."""

    config = SimpleNamespace(get=lambda key: None)

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def to(self, device):
        self.places.append(str(device))
        return self

    def encode(self, x):
        return SimpleNamespace(latents=nn.functional.avg_pool2d(x, 2))

    def decode(self, z):
        if z.isnan().any():
            raise RuntimeError("no memory left")
        return SimpleNamespace(sample=nn.functional.interpolate(z, scale_factor=2))


def test_the_autoencoder_waits_on_the_cpu():
    spy = Spy()
    stage = FirstStage(spy, "spy")
    spy.places.clear()
    device = torch.device("cpu", 0)  # told from "cpu" by its name
    latents = stage.encode(pictures(2), device)
    assert spy.places == ["cpu:0", "cpu"]
    with pytest.raises(RuntimeError, match="no memory"):
        stage.decode(latents * np.nan)
    assert len(spy.places) == 4
    assert spy.places[-1] == "cpu"


def test_bad_folders_are_named(tmp_path: Path):
    tiny.refused(r"config\.json: no such file", first_stage, str(tmp_path))
    other = tiny_pipelines.described(tmp_path / "other", "AutoencoderKLWan", "config.json")
    message = r"other/config\.json: _class_name 'AutoencoderKLWan'; accepted: AutoencoderKL,"
    tiny.refused(message, first_stage, str(other))
    folder = tmp_path / "vae"
    tiny_pipelines.autoencoder_kl().save_pretrained(folder)
    (weights,) = folder.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-100])
    tiny.refused("vae: AutoencoderKL cannot be loaded from there", first_stage, str(folder))
    weights.unlink()
    tiny.refused("vae: AutoencoderKL cannot be loaded from there", first_stage, str(folder))
    tiny.refused("no such folder, and not a hub id", first_stage, str(tmp_path / "nowhere"))
