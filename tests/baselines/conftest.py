"""What the tests of several baselines share."""

import pytest

from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.training import train

from .made_up import contributions


@pytest.fixture(scope="session")
def trained():
    """A model that has begun to distinguish the four contributors' patterns; nobody may change it."""
    model, given = DDPM.create("tiny", 8, 0), contributions()
    settings = Training(steps=60, batch_size=12, learning_rate=2e-3, flip=False)
    train(model, model.encode(given.images), settings, seed=0)
    return model
