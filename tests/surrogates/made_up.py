"""Contributions, models and material whose images are known by hand: every contributor has its own brightness."""

import dataclasses
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import torch

from diffcredit.contributions import Contributions
from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.surrogates import Material
from diffcredit.util.progress import silent

LEVELS, COUNTS = (10, 50, 200, 90), (3, 1, 2, 4)


def contributions():
    owner = np.repeat(np.arange(4), COUNTS)
    images = np.zeros((10, 8, 8, 3), dtype=np.uint8) + np.array(LEVELS, dtype=np.uint8)[owner][:, None, None, None]
    return Contributions(images, owner, ("a", "b", "c", "d"), tuple(map(str, range(10))), images[:0])


@dataclass
class Grey:
    """A model whose image of seed s is grey of brightness level + s."""

    level: float
    device: ClassVar[torch.device] = torch.device("cpu")

    def sample(self, seeds, steps, batch_size, scheduler, guidance):
        return np.stack([np.full((8, 8, 3), round(self.level) + seed, dtype=np.uint8) for seed in seeds])


class Models:
    """The contributors' models, as the room of retrainings makes them, and how often that was."""

    made = 0

    @classmethod
    def prepare(cls, context, start, training):
        cls.made += 1
        return cls()

    def model(self, index):
        return Grey(LEVELS[index])

    def average(self, weights):
        return Grey(float(np.asarray(weights) @ np.array(LEVELS)))


def material(folder, images=20, generated=None, base=None, **retraining):
    start = SimpleNamespace(fingerprint="start")
    fine_tuning = {"start": start, "settings": Training(steps=1), "context": SimpleNamespace(seed=0)}
    return Material(
        contributions(),
        Sampling(images=images, steps=1),
        folder,
        silent,
        base=lambda: base,
        generated=lambda: generated,
        retraining=SimpleNamespace(**(retraining or fine_tuning)),
    )


def other_sampling(one, **changes):
    return dataclasses.replace(one, sampling=dataclasses.replace(one.sampling, **changes))
