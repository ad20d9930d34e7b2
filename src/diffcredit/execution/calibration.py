"""How long training and sampling take here, measured on a few steps."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch

from diffcredit.diffusion.draws import plan
from diffcredit.diffusion.fast.eligibility import dtype_of, samples_fast, trains_fast
from diffcredit.diffusion.fast.fleet import Fleet
from diffcredit.diffusion.fast.functional import functions_of
from diffcredit.diffusion.fast.sampling import FastSampler
from diffcredit.diffusion.fast.sizes import fleet_size
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.protocol import Batch, DiffusionModel
from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.diffusion.training import train
from diffcredit.diffusion.unet import UNetModel
from diffcredit.features import FeaturesOption
from diffcredit.features.extractors import Extractors
from diffcredit.progress import Progress, silent

STEPS = 2
FLEET_STEPS = 20
ENOUGH = 2.0  # seconds that one measurement may take
FEW = 4  # samples that a batch is foreseen from where all of it would take longer


@dataclass(frozen=True)
class Speed:
    """Seconds of one training step, and of generating all images of an evaluation."""

    training_step: float
    sampling: float


def measure_speed(
    model: DiffusionModel, training: Training, sampling: Sampling, progress: Progress = silent, *, often: bool = False
) -> Speed:
    """Times ``model`` on a few steps of ``training`` (which changes its weights) and of ``sampling``, as a study does
    them once, or ``often``, as for every coalition."""
    if often and trains_fast(model, training) and samples_fast(model):
        return _speed_of_fleets(model, training, sampling, progress)
    few = dataclasses.replace(training, steps=STEPS, warmup_steps=0)

    def trained(size: int) -> object:
        settings = dataclasses.replace(few, batch_size=size, micro_batch=None)
        return train(model, blank_batch(model, size), settings, seed=0)

    def sampled(size: int, steps: int) -> object:
        return generate(model, dataclasses.replace(sampling, images=size, batch_size=size, steps=steps))

    batch = min(sampling.batch_size, sampling.images)
    what = "timing a few steps"
    progress(what, 0, 3)
    training_step = _seconds(trained, training.batch_size, model) / STEPS
    progress(what, 1, 3)
    short = _seconds(lambda size: sampled(size, STEPS), batch, model)
    progress(what, 2, 3)
    long = _seconds(lambda size: sampled(size, 2 * STEPS), batch, model)
    progress(what, 3, 3)
    return Speed(training_step, _whole(short, long, sampling, batch))


def _speed_of_fleets(model: DiffusionModel, training: Training, sampling: Sampling, progress: Progress) -> Speed:
    """On a GPU, where what is compiled for this is found again by the run."""
    network = cast(UNetModel, model)
    what = "compiling, and timing a few steps"
    progress(what, 0, 3)
    step = _seconds_of_a_fleet(network, fleet_size(model, training), blank_batch(model, training.batch_size), training)
    progress(what, 1, 3)
    batch = min(sampling.batch_size, sampling.images)
    functions = functions_of(network, 1, dtype_of(sampling.precision, model.device))
    seconds = []
    for steps in (STEPS, 2 * STEPS):
        few = dataclasses.replace(sampling, images=batch, steps=steps)
        sampler = FastSampler(network, functions, few)
        sampler.sample(network)
        seconds.append(float(np.median([_clocked(partial(sampler.sample, network)) for _ in range(3)])))
        progress(what, 1 + len(seconds), 3)
    return Speed(step, _whole(*seconds, sampling, batch))


def _seconds_of_a_fleet(like: UNetModel, size: int, data: Batch, training: Training) -> float:
    """Of a step of one model of a fleet of ``size``."""
    few = dataclasses.replace(training, steps=FLEET_STEPS, warmup_steps=0)
    fleet = Fleet(like, functions_of(like, size, dtype_of(training.precision, like.device)), data, few)
    plans = [plan(data.rows, few, seed, like.time_steps) for seed in range(size)]

    def steps() -> None:
        for _ in range(FLEET_STEPS):
            fleet.step()
        torch.cuda.synchronize(like.device)

    taken = []
    for _ in range(3):
        fleet.load([like] * size, plans)
        torch.cuda.synchronize(like.device)
        taken.append(_clocked(steps))
    return float(np.median(taken)) / FLEET_STEPS / size


def _whole(short: float, long: float, sampling: Sampling, batch: int) -> float:
    """Seconds of all images, from those of a batch of :data:`STEPS` steps and of twice as many: what is done once, such
    as decoding, is told from what every step does."""
    step = max(0.0, long - short) / STEPS
    once = max(0.0, short - STEPS * step)
    return (once + sampling.steps * step) * sampling.images / batch


def seconds_an_image(extractors: Extractors, option: FeaturesOption, resolution: int) -> float:
    """Of extracting features from images of so many pixels a side."""
    random = np.random.default_rng(0)

    def extracted(size: int) -> float:
        images = random.integers(0, 256, (size, resolution, resolution, 3), dtype=np.uint8)
        start = time.perf_counter()
        extractors.extract(option, images)  # ends on the CPU, so that a GPU is waited for
        return time.perf_counter() - start

    size = FEW
    extracted(size)  # warms up
    seconds = extracted(size)
    batch = extractors.get(option).batch_size
    if seconds * batch / size <= ENOUGH:
        size = batch
        seconds = float(np.median([extracted(size) for _ in range(3)]))
    return seconds / size


def blank_batch(model: DiffusionModel, size: int) -> Batch:
    """A batch of the model's shape, whatever is in it."""
    example = model.example()
    x = torch.zeros((size, *example["sample"].shape[1:]), device=model.device)
    text = example.get("encoder_hidden_states")
    if text is None:
        return Batch(x, x, torch.arange(size))
    return Batch(x, x, torch.arange(size), text.to(model.device), torch.zeros(size, dtype=torch.long, device=x.device))


def _seconds(work: Callable[[int], object], size: int, model: DiffusionModel) -> float:
    """Of ``work(size)``: the median of three runs, or, where that would take long, in proportion to a few samples."""
    few = min(size, FEW)
    _timed(work, few, model)  # warms up
    seconds = _timed(work, few, model)
    if seconds * size / few > ENOUGH:
        return seconds * size / few
    _timed(work, size, model)
    return float(np.median([_timed(work, size, model) for _ in range(3)]))


def _clocked(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _timed(work: Callable[[int], object], size: int, model: DiffusionModel) -> float:
    start = time.perf_counter()
    work(size)
    if model.device.type == "cuda":  # which is waited for
        torch.cuda.synchronize(model.device)
    return time.perf_counter() - start
