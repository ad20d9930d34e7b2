"""How long training and sampling take here, measured on a few steps."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from diffcredit.diffusion.protocol import Batch, DiffusionModel
from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.diffusion.training import train

STEPS = 3


@dataclass(frozen=True)
class Speed:
    """Seconds of one training step, and of generating all images of an evaluation."""

    training_step: float
    sampling: float


def measure_speed(model: DiffusionModel, training: Training, sampling: Sampling) -> Speed:
    """Times ``model`` on a few steps of ``training`` (which changes its weights) and of ``sampling``."""
    few = dataclasses.replace(training, steps=STEPS)
    sample = model.example()["sample"]
    x = torch.zeros((training.batch_size, *sample.shape[1:]), device=model.device)
    data = Batch(x, x, torch.arange(len(x)))
    step = _seconds(lambda: train(model, data, few, seed=0), model) / STEPS
    batch = min(sampling.batch_size, sampling.images)
    one = _seconds(lambda: model.sample(range(batch), STEPS, batch), model) / STEPS
    return Speed(step, one * sampling.steps * sampling.images / batch)


def _seconds(work: Callable[[], object], model: DiffusionModel) -> float:
    """The median of three runs after one to warm up; a GPU is waited for."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        work()
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))
