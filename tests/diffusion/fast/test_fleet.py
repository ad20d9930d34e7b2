"""Fleets against single trainings, in float64: the same weights."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model

from diffcredit.diffusion import Sampling, Training, networks
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.fast.fleet import Fleet, plan_among, train_fleet
from diffcredit.diffusion.fast.functional import architecture, functions_of
from diffcredit.diffusion.fast.sampling import FastSampler
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.session import Session
from diffcredit.diffusion.stepwise import train_stepwise
from diffcredit.retraining.lora import LoRA, _frozen
from diffcredit.retraining.pruning import prune

from ..tiny import CONFIG, PowerCut, cut_at

PLACES = [torch.arange(20), torch.tensor([5]), torch.arange(3, 27, 2)]  # one is smaller than a batch
SEEDS = [3, 4, 5]


def model(seed: int) -> DDPM:
    made = DDPM(networks.build(CONFIG, seed), CONFIG)
    made.network.double()
    return made


def data_of(like: DDPM):
    data = like.encode(np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3), dtype=np.uint8))
    return dataclasses.replace(data, x=data.x.double(), flipped=data.flipped.double())


def weights(of: DDPM) -> torch.Tensor:
    """Those that are trained."""
    return torch.cat([weight.detach().flatten() for weight in of.network.parameters() if weight.requires_grad])


BASIC = Training(steps=4, batch_size=3, learning_rate=1e-3)


def together(crew: list[DDPM], data, settings: Training, *, ascend: bool = False, **options: Any) -> list[str | None]:
    functions = functions_of(Session(), crew[0], len(crew), torch.float64)
    fleet = Fleet(crew[0], functions, data, settings, ascend=ascend)
    some = zip(PLACES, SEEDS, strict=True)
    plans = [plan_among(data, where, settings, seed, crew[0]) for where, seed in some]
    fleet.load(crew, plans[: len(crew)])
    return train_fleet(Session(), fleet, crew, **options)


def assert_as_alone(found: DDPM, make: Callable[[int], DDPM], place: int, settings: Training, ascend: bool) -> None:
    """What was trained in company from ``make(place)`` is what it becomes by itself."""
    one = make(place)
    start, own = weights(one), data_of(one).select(PLACES[place])
    options: dict[str, Any] = {"checkpoint": None, "on_step": None, "on_batch": None}
    train_stepwise(one, own, settings, seed=SEEDS[place], ascend=ascend, **options)
    moved = (weights(one) - start).norm()
    assert moved > 1e-4
    assert (weights(found) - weights(one)).norm() < 1e-11 * moved
    assert not found.network.training


def compare(make: Callable[[int], DDPM], count: int, settings: Training = BASIC, *, ascend: bool = False) -> None:
    crew = [make(place) for place in range(count)]
    assert together(crew, data_of(crew[0]), settings, ascend=ascend) == [None] * count
    for place, found in enumerate(crew):
        assert_as_alone(found, make, place, settings, ascend)


@pytest.mark.parametrize(
    "settings",
    [
        BASIC,
        dataclasses.replace(BASIC, schedule="cosine", average_tail=0.5, min_snr=5.0, gradient_clip=0.1),
        dataclasses.replace(BASIC, optimizer="adamw", weight_decay=0.1, ema=0.9, gradient_clip=None, flip=False),
        dataclasses.replace(BASIC, optimizer="sgd", learning_rate=0.1, warmup_steps=2),
    ],
    ids=["adam", "tail", "ema", "sgd"],
)
@pytest.mark.parametrize("count", [1, 3])
def test_each_model_becomes_what_it_becomes_alone(settings, count):
    compare(model, count, settings)


def test_pruned_models():
    base = model(0)
    base.network.float()
    pruned = DDPM(prune(base.network, 0.6, base.example()).double(), CONFIG)
    assert len(weights(pruned)) < len(weights(base))
    compare(lambda place: pruned.clone(), 2)


def test_ascending():
    compare(model, 2, ascend=True)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_adapters_on_one_frozen_base(dropout):
    retraining, frozen = LoRA(dropout=dropout, rank=2), _frozen(model(0))

    def adapted(seed: int) -> DDPM:
        made = retraining._adapted(frozen, seed)
        made.network.double()
        return made

    compare(adapted, 3)


def adapted_anywhere(seed: int, alpha: float) -> DDPM:
    """With an adapter on convolutions and on the time embedding too, as users train it."""
    made = _frozen(model(0))
    targets = ["to_q", "to_v", "conv1", "conv_shortcut", "time_emb_proj"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(LoraConfig(r=2, lora_alpha=alpha, target_modules=targets), made.network)
    made.network.double()
    return made


def test_adapters_on_convolutions():
    compare(lambda place: adapted_anywhere(place, 1.0), 2)


def test_adapters_of_other_scales_are_another_architecture():
    """The scale is a number in compiled code, which another adapter's model must not be given."""
    assert architecture(adapted_anywhere(0, 1.0)) == architecture(adapted_anywhere(1, 1.0))
    assert architecture(adapted_anywhere(0, 1.0)) != architecture(adapted_anywhere(0, 2.0))


def test_one_that_diverges_is_told_and_spoils_no_other():
    crew = [model(0), model(1)]
    with torch.no_grad():
        next(crew[0].network.parameters()).fill_(float("inf"))
    complaints = together(crew, data_of(crew[0]), BASIC)
    assert complaints == ["the training loss became infinite or nan at step 1", None]
    assert_as_alone(crew[1], model, 1, BASIC, ascend=False)


def test_a_training_that_was_cut_off_goes_on(tmp_path, monkeypatch):
    settings = dataclasses.replace(BASIC, steps=6, ema=0.9)
    data, file = data_of(model(0)), tmp_path / "checkpoint.safetensors"
    monkeypatch.setattr("diffcredit.diffusion.fast.fleet.LOOK_STEPS", 2)
    monkeypatch.setattr("diffcredit.diffusion.checkpoints.CHECKPOINT_SECONDS", -1.0)

    def trained(**options: Any) -> DDPM:
        made.append(model(0))
        assert together(made[-1:], data, settings, **options) == [None]
        return made[-1]

    made: list[DDPM] = []
    with pytest.raises(PowerCut):
        trained(checkpoint=file, identity=1, on_step=cut_at(4))
    assert torch.equal(weights(made[0]), weights(model(0)))
    seen: list[tuple[int, int]] = []
    again = trained(checkpoint=file, identity=1, on_step=lambda *at: seen.append(at))
    assert seen == [(4, 6), (6, 6)]  # the state of step 2 was kept
    assert torch.equal(weights(again), weights(trained()))
    # of another run, it is not touched
    seen.clear()
    trained(checkpoint=file, identity=2, on_step=lambda *at: seen.append(at))
    assert seen == [(2, 6), (4, 6), (6, 6)]


@pytest.mark.parametrize("scheduler", ["ddim", "pndm"])
def test_images_are_those_of_the_model(scheduler):
    one = model(3)
    one.network.float()
    sampling = Sampling(images=5, steps=4, batch_size=3, scheduler=scheduler, seed=7)
    sampler = FastSampler(model(0), functions_of(Session(), one, 1, torch.float32), sampling)
    found, expected = sampler.sample(one), generate(one, sampling)
    assert found.shape == expected.shape == (5, 8, 8, 3)
    assert np.abs(found.astype(int) - expected).max() <= 1
