"""The time of an evaluation: from the ledger, or from a few steps of the code path that a study uses, timed here."""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import torch

from diffcredit.diffusion.conditions import NOTHING
from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.fast.eligibility import trains_fast
from diffcredit.diffusion.generating import generate, goes_fast
from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.diffusion.session import current_session
from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.diffusion.training import WORTHWHILE, train, train_each
from diffcredit.ledger import Evaluation

STEPS = 2  # steps of training or sampling that are timed on a CPU
FEW = 4  # samples that a larger batch on the CPU is extrapolated from if it would take long
ENOUGH = 2.0  # seconds that one measurement may take
# On a GPU a shorter and a longer run separate the steps from what is done once. Recorded steps are short and many.
STEP_BY_STEP = (2, 6)
RECORDED = (20, 60)


@dataclass(frozen=True)
class Timing:
    """Seconds that work takes, and seconds of compiling for it, which are paid once on a machine."""

    seconds: float
    compiling: float = 0.0


@dataclass(frozen=True)
class EvaluationTime:
    """Seconds of an evaluation's stages, where ``at_once`` coalitions' models are trained together; ``training`` is one
    model's share."""

    training: float
    sampling: float
    measuring: float
    at_once: int = 1

    @classmethod
    def of(cls, evaluations: Sequence[Evaluation]) -> Self:
        """Return the mean times of recorded evaluations."""
        parts = ("training", "sampling", "measuring")
        means = (sum(each.seconds.get(part, 0.0) for each in evaluations) / len(evaluations) for part in parts)
        fleets = [each.numerics.get("training", {}).get("fleet", 1) for each in evaluations]
        return cls(*means, at_once=max(fleets))

    def each(self, workers: int) -> float:
        """Return the seconds of one evaluation among many. A single worker that trains fleets measures one fleet while
        it makes the next: the longer time counts."""
        if self._overlaps(workers):
            return max(self.training + self.sampling, self.measuring)
        return self.training + self._after_training

    def of_all(self, count: int, workers: int) -> float:
        """Return the seconds until ``workers`` have made ``count`` of them. A fleet that is not full takes as long."""
        fleets = math.ceil(count / (self.at_once * workers))
        making = fleets * self.at_once * self.training
        if not self._overlaps(workers) or not count:
            return making + count * self._after_training / workers
        last = count - (fleets - 1) * self.at_once
        left = self.measuring + (last - 1) * max(0.0, self.measuring - self.sampling)  # once all images are made
        first = self.at_once * self.training + self.sampling  # until there is something to measure
        return max(making + count * self.sampling + left, first + count * self.measuring)

    def _overlaps(self, workers: int) -> bool:
        return workers == 1 and self.at_once > 1

    @property
    def _after_training(self) -> float:
        """Seconds of sampling s and measuring m per evaluation: of K models made together, each but the last is
        measured while the next is sampled, so K times it is s + (K − 1) max(s, m) + m."""
        longer, shorter = sorted((self.sampling, self.measuring), reverse=True)
        return longer + shorter / self.at_once


def time_training(model: DiffusionModel, settings: Training, at_once: int | None = None) -> Timing:
    """Time the training of ``model`` by a few steps, which change its weights. ``at_once``: how many coalitions' models
    are trained together, of which one model's share is returned; None: a training that happens once, such as the base
    model's."""
    if trains_fast(model, settings) and (at_once is not None or settings.steps >= WORTHWHILE):
        return _training_together(model, settings, at_once or 1)
    if model.device.type == "cuda":
        data = blank_batch(model, settings.batch_size)
        timing = _by_steps(lambda n: train(model, data, _few(settings, n), seed=0), settings.steps, *STEP_BY_STEP)
        return Timing(timing.seconds)

    def trained(size: int) -> object:
        few = dataclasses.replace(_few(settings, STEPS), batch_size=size, micro_batch=None)
        return train(model, blank_batch(model, size), few, seed=0)

    return Timing(settings.steps * _by_samples(trained, settings.batch_size) / STEPS)


def _training_together(model: DiffusionModel, settings: Training, count: int) -> Timing:
    """Time one of ``count`` models trained together; fewer if they do not fit into memory, as in a study."""
    data = blank_batch(model, settings.batch_size)

    def trained(steps: int) -> object:
        models, places = [model.clone() for _ in range(count)], [torch.arange(len(data))] * count
        return train_each(models, data, places, _few(settings, steps), seeds=range(count), at_once=count)

    while True:
        try:
            timing = _by_steps(trained, settings.steps, *RECORDED)
            return Timing(timing.seconds / count, timing.compiling)
        except torch.OutOfMemoryError:
            if count == 1:
                raise
        finally:
            current_session().release_fleet()
        count //= 2


def time_sampling(model: DiffusionModel, sampling: Sampling, *, often: bool = False) -> Timing:
    """Time the sampling of all images, by a few steps. ``often``: for every evaluation, where compiling is worth it."""
    batch = min(sampling.batch_size, sampling.images)
    fast = goes_fast(model, sampling, often=often)

    def sampled(size: int, steps: int) -> object:
        few = dataclasses.replace(sampling, images=size, batch_size=size, steps=steps)
        return generate(model, few, often=fast)

    if model.device.type == "cuda":
        timing = _by_steps(partial(sampled, batch), sampling.steps, *(RECORDED if fast else STEP_BY_STEP))
        # a smaller last batch takes as long as a whole one
        batches = math.ceil(sampling.images / batch)
        return Timing(batches * timing.seconds, timing.compiling if fast else 0.0)
    short, long = (_by_samples(lambda size, n=n: sampled(size, n), batch) for n in (STEPS, 2 * STEPS))
    return Timing(_on_a_line(sampling.steps, STEPS, short, 2 * STEPS, long) * sampling.images / batch)


def blank_batch(model: DiffusionModel, size: int) -> Batch:
    """Return a batch of zeros in the model's shape."""
    shape = model.shape if isinstance(model, DiffusersModel) else tuple(model.example()["sample"].shape[1:])
    x, rows = torch.zeros((size, *shape), device=model.device), torch.arange(size)
    if not isinstance(model, DiffusersModel) or model.conditioner is None:
        return Batch(x, x, rows)
    nothing = model.conditioner.embed([NOTHING], model.pixels, model.device)
    return Batch(x, x, rows, nothing, torch.zeros(size, dtype=torch.long, device=x.device))


def _few(settings: Training, steps: int) -> Training:
    return dataclasses.replace(settings, steps=steps, warmup_steps=0)


def _by_steps(work: Callable[[int], object], steps: int, few: int, more: int) -> Timing:
    """Time ``work(steps)``, which ends on the host; many steps are extrapolated from ``few`` and ``more``."""
    if steps <= more:
        return _warm(partial(work, steps))
    short, long = _warm(partial(work, few)), _warm(partial(work, more))
    return Timing(_on_a_line(steps, few, short.seconds, more, long.seconds), short.compiling)


def _warm(work: Callable[[], object]) -> Timing:
    """Time ``work`` once it is warm: the first time compiles and records what later ones use."""
    first, seconds = _clocked(work), _clocked(work)
    if seconds <= ENOUGH:
        seconds = float(np.median([seconds, _clocked(work), _clocked(work)]))
    return Timing(seconds, max(0.0, first - seconds))


def _by_samples(work: Callable[[int], object], size: int) -> float:
    """Time ``work(size)``: the median of three runs or, if that would take long, in proportion to a few samples."""
    few = min(size, FEW)
    _clocked(partial(work, few))  # warms up
    seconds = _clocked(partial(work, few))
    if seconds * size / few > ENOUGH:
        return seconds * size / few
    _clocked(partial(work, size))
    return float(np.median([_clocked(partial(work, size)) for _ in range(3)]))


def _on_a_line(steps: int, few: int, short: float, more: int, long: float) -> float:
    """Extrapolate linearly to ``steps`` from ``few`` and ``more``, with a constant for what is done once, such as
    decoding."""
    step = max(0.0, long - short) / (more - few)
    once = max(0.0, short - few * step)
    return once + steps * step


def _clocked(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
