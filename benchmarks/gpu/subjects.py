"""The models that are timed, with random weights, which cost the same, and the images that they are trained on."""

import os
from pathlib import Path

import numpy as np
import torch

from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.model import Batch
from diffcredit.retraining.pruning import Sparsity

RESOLUTION = 32


def paper(parameters: int = 19_800_000) -> DDPM:
    """The CIFAR-20 DDPM of the paper, pruned to so many parameters."""
    dense = DDPM.create("ddpm-cifar", RESOLUTION, seed=0)
    pruned = Sparsity(parameters=parameters).outline(dense)
    assert isinstance(pruned, DDPM)
    return pruned.to("cuda")


def preset(name: str) -> DDPM:
    return DDPM.create(name, RESOLUTION, seed=0).to("cuda")


def images_for(model: DDPM, count: int = 10_000) -> tuple[Batch, str]:
    """CIFAR-20's training images where the variable ``CIFAR20`` says where they are, or noise; and which of both."""
    file = os.environ.get("CIFAR20")
    if file:
        with np.load(Path(file)) as arrays:
            images = next(array for array in arrays.values() if array.ndim == 4)[:count]
        return model.encode(images), "CIFAR-20"
    images = np.random.default_rng(0).integers(0, 256, (count, RESOLUTION, RESOLUTION, 3), dtype=np.uint8)
    return model.encode(images), "noise"


def weights(model: DDPM) -> torch.Tensor:
    return torch.cat([weight.detach().float().flatten() for weight in model.network.parameters()])
