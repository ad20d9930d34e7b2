"""How long training and sampling take here, measured on a few steps."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from diffcredit.diffusion.generating import generate
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
    few = dataclasses.replace(training, steps=STEPS, warmup_steps=0)
    data = blank_batch(model, training.batch_size)
    step = _seconds(lambda: train(model, data, few, seed=0), model) / STEPS
    batch = min(sampling.batch_size, sampling.images)
    few_steps = dataclasses.replace(sampling, images=batch, steps=STEPS)
    one = _seconds(lambda: generate(model, few_steps), model) / STEPS
    return Speed(step, one * sampling.steps * sampling.images / batch)


def blank_batch(model: DiffusionModel, size: int) -> Batch:
    """A batch of the model's shape, whatever is in it."""
    example = model.example()
    x = torch.zeros((size, *example["sample"].shape[1:]), device=model.device)
    text = example.get("encoder_hidden_states")
    if text is None:
        return Batch(x, x, torch.arange(size))
    return Batch(x, x, torch.arange(size), text.to(model.device), torch.zeros(size, dtype=torch.long, device=x.device))


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
