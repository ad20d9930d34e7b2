"""What each stage of the work needs: exact where it can be, against real tensors."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from diffcredit.diffusion.ddpm import PixelFamily
from diffcredit.diffusion.memory.estimate import Load, fitting, frozen_bytes, moment_bytes
from diffcredit.diffusion.memory.outlines import outline_of
from diffcredit.diffusion.optimizers import make_optimizer
from diffcredit.diffusion.pipeline import Pipeline
from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.diffusion.text_to_image import LoRAFamily

from .. import tiny_text_pipelines
from ..test_frozen_bases import CAPTIONS, storages
from ..tiny_pipelines import contributions

TRAINING, SAMPLING = Training(steps=10, batch_size=8), Sampling(images=6, batch_size=4, steps=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_text_pipelines.stable_diffusion_3(tmp_path_factory.mktemp("sd3") / "sd3", version="3.5")


@pytest.fixture(scope="module")
def given():
    return contributions(16, CAPTIONS)


def load_of(folder, given, precision="bf16", **changes):
    outline = outline_of(LoRAFamily(str(folder), rank=3, base=precision), given)
    return replace(Load(outline, 6, 4, TRAINING, SAMPLING, eight_bits=precision == "8bit"), **changes)


@pytest.mark.parametrize("precision", ["float32", "bf16", "8bit"])
def test_the_bytes_of_a_frozen_base_are_those_of_its_storages(folder, given, precision):
    if precision == "8bit":
        pytest.importorskip("bitsandbytes")
    load = load_of(folder, given, precision)
    assert load.frozen == storages([Pipeline(folder, precision=precision).network()])
    assert load.frozen == frozen_bytes(load.outline.network, eight_bits=precision == "8bit")


def test_parts_of_a_step_of_training(folder, given):
    load = load_of(folder, given, training=replace(TRAINING, ema=0.99))
    model = LoRAFamily(str(folder), rank=3, base="bf16").start(given, 0)
    data = model.encode(given.images, given.captions)
    parts = load.of_training().parts
    trained = sum(each.nbytes for each in model.network.parameters() if each.requires_grad)
    assert parts["trained weights"] == parts["gradients"] == parts["average"] == trained
    assert parts["encoded images"] == data.x.nbytes + data.flipped.nbytes
    assert parts["conditions"] == sum(each.nbytes for each in data.conditions.values())
    assert parts["activations"] > 0
    halved = replace(load, training=replace(load.training, micro_batch=4)).of_training()
    assert 0.4 < halved.parts["activations"] / parts["activations"] < 0.6
    assert halved.stage == "a step of training, 4 images at once"


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "adam8bit", "adamw8bit"])
def test_the_bytes_of_an_optimizer(name):
    if name.endswith("8bit"):
        pytest.importorskip("bitsandbytes")
    for numbers in (100, 10_000):
        weight = nn.Parameter(torch.zeros(numbers))
        weight.grad = torch.ones(numbers)
        optimizer = make_optimizer(Training(steps=10, optimizer=name), [weight])
        optimizer.step()
        state = [each for each in optimizer.state[weight].values() if isinstance(each, torch.Tensor) and each.ndim]
        held = sum(each.nbytes for each in state if "qmap" not in str(each.shape) and each.numel() != 256)
        assert held == moment_bytes(numbers, name)


def test_stages_of_a_text_to_image_study(folder, given):
    needs = {need.stage: need for need in load_of(folder, given).needs()}
    assert list(needs) == [
        "encoding texts",
        "encoding images, 6 at once",
        "a step of training, 8 images at once",
        "a step of sampling, 4 images at once",
        "decoding images, 4 at once",
    ]
    model = LoRAFamily(str(folder), rank=3, base="bf16").start(given, 0)
    encoders = [each for each in model.conditioner._load().components.values() if isinstance(each, nn.Module)]
    assert needs["encoding texts"].parts["text encoders"] == storages(encoders)
    assert needs["decoding images, 4 at once"].parts["autoencoder"] == storages([model.stage.autoencoder])
    assert not any(need.unknown for need in needs.values())


def test_stages_of_a_model_of_pixels(given):
    load = Load(outline_of(PixelFamily(preset="tiny"), given), 6, 0, TRAINING, SAMPLING)
    assert [need.stage.partition(",")[0] for need in load.needs()] == ["a step of training", "a step of sampling"]
    half = replace(load, computes_bf16=True)
    ratio = half.of_training().parts["activations"] / load.of_training().parts["activations"]
    assert 0.4 < ratio < 0.7


def test_guidance_doubles_a_step_of_sampling(folder, given):
    guided, unguided = (
        next(
            need
            for need in load_of(folder, given, sampling=replace(SAMPLING, guidance=scale)).needs()
            if "sampling" in need.stage
        )
        for scale in (5.0, 1.0)
    )
    assert 1.6 < guided.parts["activations"] / unguided.parts["activations"] < 2.4


def test_settings_that_fit_are_found_the_harmless_ones_first(folder, given):
    load = load_of(folder, given, "float32")
    needed = load.of_training().total
    assert fitting(load, needed, "float32") == ([], needed)
    chosen, then = fitting(load, needed - 1, "float32")
    assert chosen == ["model.train.gradient_checkpointing: true"]
    assert then < needed
    chosen, then = fitting(load, then - 1, "float32")
    assert chosen == ["model.train.gradient_checkpointing: true", "model.train.micro_batch: 4"]
    chosen, least = fitting(load, 0, "float32")
    assert chosen == ["model.train.gradient_checkpointing: true", "model.train.micro_batch: 1", "model.base: 8bit"]
    assert load_of(folder, given, "8bit").frozen < least < then
    assert fitting(load, 0, None)[0] == chosen[:2]


def test_large_conditions_stay_off_the_device(folder, given):
    load = load_of(folder, given)
    many = replace(load, texts=10**6)
    assert many.conditions == 10**6 * load.conditions // 4 > 2 * 2**30
    assert many.of_training().parts["conditions"] == 0
