"""Trains a fleet of three and says its weights' hash, in a process of its own: ``trained_fleet.py DEVICE STEPS``."""

import hashlib
import sys

import numpy as np
import torch

from diffcredit.diffusion import Training
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.training import train_each

PLACES = [torch.arange(30), torch.tensor([4, 7]), torch.arange(10, 50)]


def main() -> None:
    start = DDPM.create("mini", 16, 0).to(sys.argv[1])
    data = start.encode(np.random.default_rng(0).integers(0, 256, (50, 16, 16, 3), dtype=np.uint8))
    crew = [start.clone() for _ in PLACES]
    settings = Training(steps=int(sys.argv[2]), batch_size=8, schedule="cosine", average_tail=0.5)
    assert train_each(crew, data, PLACES, settings, seeds=[0, 1, 2], at_once=3) == [None] * 3
    found = hashlib.sha256()
    for weight in (weight for model in crew for weight in model.network.parameters()):
        found.update(weight.detach().float().cpu().numpy().tobytes())
    sys.stdout.write(f"{crew[0].made['path']} {found.hexdigest()}\n")


if __name__ == "__main__":
    main()
