"""Who goes the fast way, with a model that says that it is on a GPU."""

import dataclasses
import warnings

import pytest
import torch
from torch import nn

from diffcredit.diffusion import Training
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.denoisers.base import Denoiser
from diffcredit.diffusion.fast import eligibility
from diffcredit.diffusion.fast.eligibility import (
    dtype_of,
    fleet_size,
    give_up,
    samples_fast,
    training_bytes,
    trains_fast,
)
from diffcredit.diffusion.fast.stacking import CannotStack
from diffcredit.diffusion.model import Batch
from diffcredit.errors import DiffcreditWarning

from .tiny_models import KINDS, Base, TinyModel, whole

SETTINGS = Training(steps=1)


class OnGPU(DDPM):
    device = torch.device("cuda")


@pytest.fixture(autouse=True)
def fresh(session, monkeypatch):
    monkeypatch.setattr(eligibility, "find_spec", lambda name: name)
    monkeypatch.delenv("TORCH_COMPILE_DISABLE", raising=False)


@pytest.fixture(scope="module")
def model() -> DDPM:
    return OnGPU.create("tiny", 8, 0)


def test_a_gpu_goes_fast_and_a_cpu_has_nothing_to_be_told(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trains_fast(model, SETTINGS)
        assert samples_fast(model)
        assert not trains_fast(DDPM.create("tiny", 8, 0), SETTINGS)
        assert not samples_fast(DDPM.create("tiny", 8, 0))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"optimizer": "adam8bit"}, "optimizer: adam8bit"),
        ({"micro_batch": 8}, "micro_batch: 8"),
        ({"gradient_checkpointing": True}, "gradient_checkpointing"),
    ],
)
def test_one_warning_says_why_not(model, changes, reason):
    settings = dataclasses.replace(SETTINGS, **changes)
    with pytest.warns(DiffcreditWarning, match=f"training goes step by step on this GPU.*{reason}"):
        assert not trains_fast(model, settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not trains_fast(model, settings)


def test_what_the_machine_lacks(model, monkeypatch):
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    with pytest.warns(DiffcreditWarning, match="TORCH_COMPILE_DISABLE"):
        assert not samples_fast(model)
    monkeypatch.setattr(eligibility, "find_spec", lambda name: None)
    with pytest.warns(DiffcreditWarning, match="Triton is not installed"):
        assert not trains_fast(model, SETTINGS)


def test_models_of_another_make():
    class Own:
        device = torch.device("cuda")

    with pytest.warns(DiffcreditWarning, match="Own is no DiffusersModel"):
        assert not trains_fast(Own(), SETTINGS)


def test_networks_that_no_compiled_function_can_run(model):
    texts = Base("z-image").adapted(0)
    texts.__class__ = type("TextsOnGPU", (type(texts),), {"device": torch.device("cuda")})
    with pytest.warns(DiffcreditWarning, match="ZImageTransformer2DModel cuts texts to their lengths"):
        assert not trains_fast(texts, SETTINGS)
    assert not samples_fast(texts)
    small = model.clone()
    small.network.conv_in.weight = nn.Parameter(torch.zeros(16, 3, 3, 3, dtype=torch.int8), requires_grad=False)
    with pytest.warns(DiffcreditWarning, match="the frozen base is in 8 bits"):
        assert not samples_fast(small)


def test_conditions_on_another_device(model):
    """A recorded step cannot fetch them."""

    def batch(device: str) -> Batch:
        conditions = {"hidden": torch.zeros(3, 256, 2**18, device=device)}
        x = torch.zeros(2, 3, 8, 8, device="meta")
        return Batch(x, x, torch.arange(2), conditions, torch.zeros(2, dtype=torch.long))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trains_fast(model, SETTINGS, batch("meta"))
    with pytest.warns(DiffcreditWarning, match=r"the conditions of 3 texts, 0.8 GiB, are kept on the CPU"):
        assert not trains_fast(model, SETTINGS, batch("cpu"))
    assert trains_fast(model, SETTINGS, batch("meta"))


def test_a_compiler_that_fails_is_asked_once_and_a_network_that_cannot_is_its_own_matter(session, model):
    with pytest.warns(DiffcreditWarning, match="lora drops out"):
        give_up(session, "training", CannotStack("lora drops out 0.05 of its inputs at random"))
    assert trains_fast(model, SETTINGS)
    with pytest.warns(DiffcreditWarning, match="training goes step by step.*no C compiler$"):
        give_up(session, "training", RuntimeError("no C compiler\nand a long story"))
    assert not trains_fast(model, SETTINGS)
    assert not samples_fast(model)


def test_types_of_numbers(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_: True)
    assert dtype_of("auto", torch.device("cuda")) == torch.bfloat16
    assert dtype_of("auto", torch.device("cpu")) == torch.float32
    assert dtype_of("float32", torch.device("cuda")) == torch.float32
    assert dtype_of("bf16", torch.device("cpu")) == torch.bfloat16
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_: False)
    assert dtype_of("auto", torch.device("cuda")) == torch.float32


def test_memory_as_measured():
    """22 bytes a weight, and what the backward pass needs for each image."""
    model = DDPM.create("tiny", 8, 0)
    weights = sum(weight.numel() for weight in model.network.parameters())
    one, two = training_bytes(model, 1), training_bytes(model, 2)
    assert training_bytes(model, 10) - one == 9 * (two - one)
    assert 2 * one - two == 22 * weights
    mini, light = (training_bytes(DDPM.create(preset, 32, 0), 64) for preset in ("mini", "light"))
    # 16 fleets of mini took 3.6 GiB on a GPU, 8 of light 4.1 GiB
    assert 0.8 < 16 * mini / (3.6 * 2**30) < 1.25
    assert 0.8 < 8 * light / (4.1 * 2**30) < 1.25


def test_memory_of_an_adapter_by_hand():
    """A frozen layer's input is not kept; that of a trained one and each tanh's result are."""

    class Plain(Denoiser):
        network = "Sequential"

        def predict(self, network, x, time, condition, guidance=None):
            return network(x)

    layers = [nn.Conv2d(4, 8, 1), nn.Tanh(), nn.Conv2d(8, 16, 1), nn.Tanh(), nn.Conv2d(16, 4, 1)]
    network = nn.Sequential(*layers).requires_grad_(False)
    network[2].requires_grad_(True)
    model = TinyModel(dataclasses.replace(KINDS["dit"], denoiser=Plain()), network)
    pixels = 8 * 8
    assert training_bytes(model, 3) == 22 * (8 * 16 + 16) + 2 * 3 * pixels * (8 + 16)


@pytest.mark.parametrize("name", KINDS)
def test_memory_of_any_model(name):
    adapted, entire = Base(name).adapted(0), whole(name, 0)
    trained = sum(weight.numel() for weight in adapted.network.parameters() if weight.requires_grad)
    assert training_bytes(adapted, 4) > 22 * trained
    assert training_bytes(adapted, 4) < training_bytes(entire, 4)
    rounded = Base(name, torch.bfloat16).adapted(0)
    assert 0.5 < (training_bytes(rounded, 4) - 22 * trained) / (training_bytes(adapted, 4) - 22 * trained) < 1.5


def test_a_float32_base_is_copied_for_a_fleet_in_bf16_and_no_other(monkeypatch):
    base, rounded = Base("sd3"), Base("sd3", torch.bfloat16)
    frozen = sum(weight.numel() for weight in base.network().parameters())
    monkeypatch.setattr(eligibility, "trains_fast", lambda *_: True)
    settings, free = dataclasses.replace(SETTINGS, precision="bf16", batch_size=4), [0.0]
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (free[0], 1e12))
    for model, copied in ((base.adapted(0), 2 * frozen), (rounded.adapted(0), 0)):
        free[0] = 5.5 * training_bytes(model, 4) / eligibility.SHARE + copied
        assert fleet_size(model, settings) == 5


def test_fleets_by_weights_and_by_memory(monkeypatch):
    assert fleet_size(DDPM.create("tiny", 8, 0), SETTINGS) == 1, "none without a GPU"
    free = [1e12]
    monkeypatch.setattr(eligibility, "trains_fast", lambda *_: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (free[0], 1e12))
    settings = Training(steps=1, batch_size=64)
    mini, light, small = (DDPM.create(preset, 32, 0) for preset in ("mini", "light", "small"))
    assert [fleet_size(model, settings) for model in (mini, light, small)] == [16, 8, 1]
    free[0] = 5.5 * training_bytes(mini, 64) / eligibility.SHARE
    assert fleet_size(mini, settings) == 5
    free[0] = 0.0
    assert fleet_size(mini, settings) == 1
    mini.network.down_blocks[0].resnets[0].dropout = nn.Dropout2d(0.1)
    free[0] = 1e12
    assert fleet_size(mini, settings) == 1
