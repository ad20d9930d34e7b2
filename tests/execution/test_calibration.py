"""What is foreseen, by a clock that only the work moves."""

import pytest
import torch

from diffcredit.diffusion import Sampling, Training
from diffcredit.execution import calibration
from diffcredit.execution.calibration import measure_speed

STEP, DENOISE, DECODE = 0.5, 0.01, 0.2  # seconds a sample: of a training step, of a sampling step, of decoding


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
def test_work_that_grows_with_the_batch_is_foreseen_exactly(clock, batch):
    model, sampling = Model(clock), Sampling(images=1000, steps=50, batch_size=batch)
    speed = measure_speed(model, Training(steps=900, batch_size=batch, warmup_steps=500), sampling)
    assert speed.training_step == pytest.approx(batch * STEP)
    # decoding comes once, not at every step
    assert speed.sampling == pytest.approx(1000 * (50 * DENOISE + DECODE))


def test_large_batches_are_foreseen_from_a_few_samples(clock):
    model = Model(clock)
    measure_speed(model, Training(steps=9, batch_size=512), Sampling(images=512, steps=50, batch_size=512))
    assert model.largest == calibration.FEW
