"""Estimates of training and sampling, by a clock that only the work moves."""

import pytest
import torch

from diffcredit.diffusion import Sampling, Training
from diffcredit.diffusion.generating import WORTHWHILE as MANY_IMAGE_STEPS
from diffcredit.diffusion.training import WORTHWHILE
from diffcredit.execution.timing import calibration
from diffcredit.execution.timing.calibration import time_sampling, time_training

STEP, DENOISE, DECODE = 0.5, 0.01, 0.2  # seconds a sample: of a training step, of a sampling step, of decoding
LAUNCHES, BEGIN = 0.25, 0.125  # seconds of a GPU's host: for a step of whatever size, and once a training or batch
COMPILE, REPLAY = 30.0, 0.03125  # seconds: of compiling once, and of a step of a recording, whatever its size


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Model:
    device = torch.device("cpu")

    def __init__(self, clock: Clock) -> None:
        self.clock, self.largest = clock, 0

    def example(self):
        return {"sample": torch.zeros(1, 3, 4, 4)}

    def clone(self):
        return self

    def sample(self, seeds, steps, batch_size, scheduler, guidance):
        self.largest = max(self.largest, len(seeds))
        self.clock.now += len(seeds) * (steps * DENOISE + DECODE)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()

    def train(model, data, settings, *, seed):
        model.largest = max(model.largest, len(data))
        clock.now += settings.steps * settings.batch_size * STEP

    monkeypatch.setattr(calibration, "time", clock)
    monkeypatch.setattr(calibration, "train", train)
    return clock


@pytest.mark.parametrize("batch", [4, 64])
@pytest.mark.parametrize("at_once", [None, 1])
def test_work_that_grows_with_the_batch_is_foreseen_exactly(clock, batch, at_once):
    model, training = Model(clock), Training(steps=900, batch_size=batch, warmup_steps=500)
    assert time_training(model, training, at_once).seconds == pytest.approx(900 * batch * STEP)
    # decoding comes once, not at every step
    sampling = Sampling(images=1000, steps=50, batch_size=batch)
    assert time_sampling(model, sampling).seconds == pytest.approx(1000 * (50 * DENOISE + DECODE))
    assert model.largest == calibration.FEW  # samples, where more would take long


class Gpu:
    """A GPU whose steps take the host's time and not the samples': step by step or, after compiling once for each size
    of a fleet and for sampling, recorded. ``ways`` are what it was asked for."""

    def __init__(self, monkeypatch, *, fast: bool, memory: int = 100) -> None:
        self.clock, self.fast, self.memory = Clock(), fast, memory
        self.ways: list[tuple] = []
        self.compiled: set = set()
        self.model = Model(self.clock)
        self.model.device = torch.device("cuda")
        monkeypatch.setattr(calibration, "time", self.clock)
        monkeypatch.setattr(calibration, "blank_batch", lambda model, size: [None] * size)
        monkeypatch.setattr(calibration, "trains_fast", lambda model, settings: fast)
        monkeypatch.setattr("diffcredit.diffusion.generating.samples_fast", lambda model: fast)
        monkeypatch.setattr(calibration, "train", self.train)
        monkeypatch.setattr(calibration, "train_each", self.train_each)
        monkeypatch.setattr(calibration, "generate", self.generate)

    def compile(self, what) -> None:
        self.clock.now += 0 if what in self.compiled else COMPILE
        self.compiled.add(what)

    def train(self, model, data, settings, *, seed):
        assert settings.warmup_steps == 0
        self.ways.append(("step by step", settings.batch_size, settings.micro_batch))
        self.clock.now += BEGIN + settings.steps * LAUNCHES

    def train_each(self, models, data, places, settings, *, seeds, at_once):
        assert len(models) == len(places) == len(seeds) == at_once
        self.ways.append(("fleet", at_once, settings.batch_size))
        if at_once > self.memory:
            raise torch.OutOfMemoryError
        self.compile(at_once)
        self.clock.now += at_once * BEGIN + settings.steps * at_once * REPLAY

    def generate(self, model, sampling, *, often):
        self.ways.append(("images", sampling.images, often))
        if often:
            self.compile("sampling")
        self.clock.now += BEGIN + sampling.steps * (REPLAY if often else LAUNCHES)


@pytest.mark.parametrize(
    ("steps", "at_once", "fast", "way", "seconds", "compiling"),
    [
        # once: recorded only where it is long enough
        (WORTHWHILE - 1, None, True, "step by step", BEGIN + (WORTHWHILE - 1) * LAUNCHES, 0),
        (WORTHWHILE, None, True, "fleet", BEGIN + WORTHWHILE * REPLAY, COMPILE),
        # for every coalition: always, if at all
        (300, 16, True, "fleet", BEGIN + 300 * REPLAY, COMPILE),
        (300, 1, False, "step by step", BEGIN + 300 * LAUNCHES, 0),
    ],
)
def test_a_training_on_a_gpu_is_timed_as_the_study_does_it(monkeypatch, steps, at_once, fast, way, seconds, compiling):
    gpu = Gpu(monkeypatch, fast=fast)
    training = Training(steps=steps, batch_size=128, micro_batch=32, warmup_steps=3)
    timing = time_training(gpu.model, training, at_once)
    # of all samples at once, since a few take a GPU as long
    assert set(gpu.ways) == {("fleet", at_once or 1, 128) if way == "fleet" else ("step by step", 128, 32)}
    assert timing.seconds == pytest.approx(seconds)
    assert timing.compiling == pytest.approx(compiling)


def test_a_fleet_that_memory_does_not_hold_is_halved(monkeypatch):
    gpu = Gpu(monkeypatch, fast=True, memory=5)
    timing = time_training(gpu.model, Training(steps=300), 16)
    assert [at_once for _, at_once, _ in gpu.ways[:3]] == [16, 8, 4]
    assert timing.seconds == pytest.approx(BEGIN + 300 * REPLAY)
    with pytest.raises(torch.OutOfMemoryError):
        time_training(Gpu(monkeypatch, fast=True, memory=0).model, Training(steps=300), 2)


@pytest.mark.parametrize(
    ("images", "steps", "often", "fast", "recorded"),
    [
        (1000, MANY_IMAGE_STEPS // 1000, False, True, True),
        (1000, MANY_IMAGE_STEPS // 1000 - 1, False, True, False),
        (1000, MANY_IMAGE_STEPS // 1000 - 1, True, True, True),
        (1000, MANY_IMAGE_STEPS // 1000, True, False, False),
    ],
)
def test_images_on_a_gpu_are_timed_as_the_study_makes_them(monkeypatch, images, steps, often, fast, recorded):
    gpu = Gpu(monkeypatch, fast=fast)
    timing = time_sampling(gpu.model, Sampling(images=images, steps=steps, batch_size=256), often=often)
    assert set(gpu.ways) == {("images", 256, recorded)}
    # 1000 images are three batches of 256 and one of 232, which takes as long
    assert timing.seconds == pytest.approx(4 * (BEGIN + steps * (REPLAY if recorded else LAUNCHES)))
    assert timing.compiling == pytest.approx(COMPILE if recorded else 0)
