"""What the tests of several baselines share."""

import pytest
import torch

from diffcredit.diffusion.pipeline import pipeline
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.text_to_image import TextToImageLoRA
from diffcredit.diffusion.training import train
from diffusion.tiny_pipelines import stable_diffusion

from .made_up import contributions, tiny_model


@pytest.fixture(scope="session")
def trained():
    """A model that has begun to distinguish the four contributors' patterns; nobody may change it."""
    model, given = tiny_model(), contributions()
    settings = Training(steps=30, batch_size=12, learning_rate=4e-3, flip=False)
    train(model, model.encode(given.images), settings, seed=0)
    return model


@pytest.fixture(scope="session")
def text_model(tmp_path_factory):
    """A LoRA whose A and B are random: B is zero at first, and with it all derivatives of A. Nobody may change it."""
    folder = stable_diffusion(tmp_path_factory.mktemp("stable-diffusion") / "pipeline")
    model = TextToImageLoRA.create(pipeline(str(folder)), 2, ("a", "b"), None, 16, seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.network.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return model
