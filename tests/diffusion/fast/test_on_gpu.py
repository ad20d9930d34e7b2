"""The fast path where it is for: against the plain loop on the same GPU."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from diffcredit.diffusion import Sampling, Training, checkpoints, training
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.fast import fleet as fast_training
from diffcredit.diffusion.fast.functional import functions_of
from diffcredit.diffusion.fast.sampling import FastSampler
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.session import Session, current_session
from diffcredit.diffusion.stepwise import train_stepwise
from diffcredit.diffusion.training import train, train_each

from ..tiny import PowerCut, cut_at
from .test_conditional import FULL, SAMPLING, distances
from .tiny_models import Base, data_of, latents, moved, whole

pytestmark = pytest.mark.gpu

SETTINGS = Training(steps=20, batch_size=8, learning_rate=1e-4, schedule="cosine", average_tail=0.5)
PLACES = [torch.arange(30), torch.tensor([4, 7]), torch.arange(10, 50)]


@pytest.fixture(scope="module")
def start() -> DDPM:
    return DDPM.create("mini", 16, 0).to("cuda")


@pytest.fixture(scope="module")
def data(start):
    return start.encode(np.random.default_rng(0).integers(0, 256, (50, 16, 16, 3), dtype=np.uint8))


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    monkeypatch.setattr(training, "WORTHWHILE", 1)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)


def weights(model: DDPM) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in model.network.parameters()])


def distance(one: DDPM, other: DDPM, start: DDPM) -> float:
    """Of two models, over how far the second has moved; without keys' biases, whose gradient is zero but for rounding,
    of which Adam makes steps as of any other."""
    moved = [
        torch.cat([weight.detach().flatten() for name, weight in names if not name.endswith("to_k.bias")])
        for names in (model.network.named_parameters() for model in (one, other, start))
    ]
    return float((moved[0] - moved[1]).norm() / (moved[1] - moved[2]).norm())


def plain(start: DDPM, data, place: int, settings: Training) -> DDPM:
    model = start.clone()
    options: dict[str, Any] = {"checkpoint": None, "on_step": None, "on_batch": None, "ascend": False}
    train_stepwise(model, data.select(PLACES[place]), settings, seed=place, **options)
    return model


@pytest.mark.parametrize(("precision", "bound"), [("float32", 5e-3), ("bf16", 0.1)])
def test_fleets_and_single_models_become_what_the_plain_loop_makes(start, data, precision, bound):
    settings = dataclasses.replace(SETTINGS, precision=precision)
    single, crew = start.clone(), [start.clone() for _ in PLACES]
    assert train_each([single], data, PLACES[:1], settings, seeds=[0]) == [None]
    assert train_each(crew, data, PLACES, settings, seeds=[0, 1, 2], at_once=3) == [None] * 3
    expected = dataclasses.replace(settings, precision="float32")
    assert single.made["path"] == crew[0].made["path"] == "graph"
    assert distance(single, plain(start, data, 0, expected), start) < bound
    for place, model in enumerate(crew):
        assert distance(model, plain(start, data, place, expected), start) < bound


def test_again_is_the_same_bit_for_bit(start, data):
    crews = [[start.clone() for _ in PLACES] for _ in range(2)]
    for crew in crews:
        train_each(crew, data, PLACES, SETTINGS, seeds=[0, 1, 2], at_once=3)
        current_session().release_fleet()  # as another process would
    assert all(torch.equal(weights(one), weights(other)) for one, other in zip(*crews, strict=True))


def test_processes_that_compile_for_themselves_get_the_same_bits(tmp_path):
    """Side by side, so that each is now faster and now slower."""
    script = Path(__file__).with_name("trained_fleet.py")
    started = []
    for name in ("one", "other"):
        caches = {"XDG_CACHE_HOME": str(tmp_path / name), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / name / "inductor")}
        command = [sys.executable, str(script), "cuda", "200"]
        started.append(subprocess.Popen(command, env=os.environ | caches, stdout=subprocess.PIPE, text=True))
    said = [process.communicate()[0].split() for process in started]
    assert said[0][0] == "graph"
    assert said[0] == said[1]


def test_a_training_that_was_cut_off_goes_on_bit_for_bit(start, data, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(fast_training, "LOOK_STEPS", 5)
    whole, cut = start.clone(), start.clone()
    train(whole, data, SETTINGS, seed=3)
    with pytest.raises(PowerCut):
        train(cut, data, SETTINGS, seed=3, checkpoint=tmp_path / "it", on_step=cut_at(15))
    seen: list[int] = []
    train(cut, data, SETTINGS, seed=3, checkpoint=tmp_path / "it", on_step=lambda done, _: seen.append(done))
    assert seen == [15, 20]
    assert torch.equal(weights(cut), weights(whole))


@pytest.mark.parametrize("scheduler", ["ddim", "dpm"])
def test_images(start, scheduler):
    sampling = Sampling(images=20, steps=8, batch_size=8, scheduler=scheduler, precision="float32")
    eager = start.sample(sampling.seeds, 8, 8, scheduler=scheduler).astype(float)
    found = generate(start, sampling, often=True).astype(float)
    assert np.abs(found - eager).mean() < 0.05
    rounded = generate(start, dataclasses.replace(sampling, precision="bf16"), often=True).astype(float)
    assert 0 < np.abs(rounded - eager).mean() < 4


# the plain loop in float32; the fleet's own numbers are stated
CONDITIONAL = dataclasses.replace(FULL, steps=10, precision="float32")


@pytest.mark.parametrize(("numbers", "bound"), [(torch.float32, 1e-3), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("name", ["dit", "sd3"])
def test_whole_transformers(name, numbers, bound):
    """Of flow matching, with labels or captions that are dropped by key."""
    data = moved(data_of(whole(name, 0)), "cuda")
    settings = dataclasses.replace(CONDITIONAL, optimizer="sgd", learning_rate=0.1)
    found = distances(lambda seed: whole(name, seed).to("cuda"), settings, numbers, data)
    assert max(found) < bound, found


@pytest.mark.parametrize(
    ("dtype", "numbers", "bound"),
    [
        (torch.float32, torch.float32, 1e-3),
        (torch.bfloat16, torch.float32, 0.1),
        (torch.bfloat16, torch.bfloat16, 0.1),
    ],
)
@pytest.mark.parametrize("name", ["sd", "sdxl", "sd3", "flux", "flux2", "qwen", "sana", "pixart"])
def test_adapters_on_one_frozen_base(name, dtype, numbers, bound):
    base, settings = Base(name, dtype), dataclasses.replace(CONDITIONAL, optimizer="sgd", learning_rate=1.0)
    data = moved(data_of(base.adapted(0)), "cuda")
    found = distances(lambda seed: base.adapted(seed).to("cuda"), settings, numbers, data)
    assert max(found) < bound, found


@pytest.mark.parametrize("guidance", ["unguided", 3.5])
@pytest.mark.parametrize("name", ["sd", "sdxl", "sd3", "flux-told", "qwen", "dit"])
def test_guided_sampling(name, guidance):
    base = Base(name)
    model, other = base.adapted(0).to("cuda"), base.adapted(1).to("cuda")
    scale = model.denoiser.unguided if guidance == "unguided" else guidance
    sampling = dataclasses.replace(SAMPLING, guidance=scale)
    with torch.no_grad():
        expected = model.denoise(sampling.seeds, sampling.steps, "ddim", scale).cpu()
    for numbers, bound in ((torch.float32, 1e-3), (torch.bfloat16, 0.03)):
        sampler = FastSampler(other, functions_of(Session(), model, 1, numbers), sampling)
        found = latents(sampler.sample(model))
        assert (found - expected).norm() < bound * expected.norm()


def near(found, theirs) -> None:
    for one, other in zip(found, theirs, strict=True):
        assert (one.double() - other).norm() < 0.01 * other.norm()


@pytest.mark.parametrize(
    "shape", [(3, 8, 16, 32, 32, 1, 1), (2, 4, 16, 3, 64, 1, 1), (2, 4, 16, 96, 64, 2, 0), (2, 4, 8, 64, 128, 1, 1)]
)
def test_convolutions(shape):
    from diffcredit.diffusion.fast.convolution import convolved

    models, images, size, into, out, stride, padding = shape
    generator = torch.Generator("cuda").manual_seed(0)
    x, weight, bias = (
        torch.randn(*dimensions, device="cuda", generator=generator).bfloat16().requires_grad_()
        for dimensions in ((models * images, into, size, size), (models, out, 3, 3, into), (models, out))
    )
    y = convolved(x, weight, bias, stride, padding)
    wide = [each.detach().double().requires_grad_() for each in (x, weight, bias)]
    expected = torch.cat(
        [
            F.conv2d(own, wide[1][k].permute(0, 3, 1, 2), wide[2][k], stride, padding)
            for k, own in enumerate(wide[0].chunk(models))
        ]
    )
    slope = torch.randn(y.shape, device="cuda", generator=generator).bfloat16()
    found = [y, *torch.autograd.grad(y, [x, weight, bias], slope)]
    near(found, [expected, *torch.autograd.grad(expected, wide, slope.double())])


@pytest.mark.parametrize(("size", "channels", "groups"), [(32, 96, 32), (16, 64, 16), (8, 192, 32), (80, 32, 8)])
def test_norms(size, channels, groups):
    from diffcredit.diffusion.fast.norms import normed

    generator = torch.Generator("cuda").manual_seed(0)
    x, shift, weight, bias = (
        torch.randn(*dimensions, device="cuda", generator=generator).bfloat16().requires_grad_()
        for dimensions in ((6, channels, size, size), (6, channels), (2, channels), (2, channels))
    )
    y = normed(x, shift, weight, bias, groups, 1e-5, silu=True)
    wide = [each.detach().double().requires_grad_() for each in (x, shift, weight, bias)]
    moved = wide[0] + wide[1][:, :, None, None]
    expected = F.silu(
        torch.cat([F.group_norm(own, groups, wide[2][k], wide[3][k]) for k, own in enumerate(moved.chunk(2))])
    )
    slope = torch.randn(y.shape, device="cuda", generator=generator).bfloat16()
    found = [y, *torch.autograd.grad(y, [x, shift, weight, bias], slope)]
    near(found, [expected, *torch.autograd.grad(expected, wide, slope.double())])
