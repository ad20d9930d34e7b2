"""Fleets against single trainings, in float64: the same weights."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from diffcredit.diffusion import Sampling, Training, networks
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.fast.fleet import Fleet, plan_among, train_fleet
from diffcredit.diffusion.fast.functional import functions_of
from diffcredit.diffusion.fast.sampling import FastSampler
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.session import Session
from diffcredit.diffusion.stepwise import train_stepwise
from diffcredit.retraining.lora import LoRA, _frozen
from diffcredit.retraining.pruning import prune

from ..tiny import CONFIG

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
    return torch.cat([weight.detach().flatten() for weight in of.network.parameters()])


def alone(one: DDPM, data, settings: Training, place: int, *, ascend: bool = False) -> DDPM:
    options: dict[str, Any] = {"checkpoint": None, "on_step": None, "on_batch": None}
    train_stepwise(one, data.select(PLACES[place]), settings, seed=SEEDS[place], ascend=ascend, **options)
    return one


def together(crew: list[DDPM], data, settings: Training, count: int, **options: Any) -> list[str | None]:
    fleet = Fleet(crew[0], functions_of(Session(), crew[0], count, torch.float64), data, settings, **options)
    plans = [
        plan_among(data, where, settings, seed, crew[0].time_steps)
        for where, seed in zip(PLACES[: len(crew)], SEEDS, strict=False)
    ]
    fleet.load(crew, plans)
    return train_fleet(Session(), fleet, crew)


BASIC = Training(steps=4, batch_size=3, learning_rate=1e-3)


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
    data = data_of(model(0))
    crew = [model(place) for place in range(count)]
    assert together(crew, data, settings, count) == [None] * count
    for place, found in enumerate(crew):
        start, expected = weights(model(place)), weights(alone(model(place), data, settings, place))
        assert (expected - start).norm() > 1e-3
        assert (weights(found) - expected).norm() < 1e-11 * (expected - start).norm()
        assert not found.network.training


def test_pruned_models():
    base = model(0)
    base.network.float()
    pruned = DDPM(prune(base.network, 0.6, base.example()).double(), CONFIG)
    data = data_of(pruned)
    crew = [pruned.clone(), pruned.clone()]
    assert together(crew, data, BASIC, 2) == [None] * 2
    for place, found in enumerate(crew):
        expected = weights(alone(pruned.clone(), data, BASIC, place))
        assert torch.allclose(weights(found), expected, rtol=0, atol=1e-12)
    assert len(weights(pruned)) < len(weights(base))


def test_ascending():
    data, crew = data_of(model(0)), [model(0), model(1)]
    together(crew, data, BASIC, 2, ascend=True)
    expected = weights(alone(model(1), data, BASIC, 1, ascend=True))
    assert torch.allclose(weights(crew[1]), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_adapters_on_one_frozen_base(dropout):
    data, base = data_of(model(0)), model(0)
    retraining = LoRA(dropout=dropout, rank=2)
    frozen = _frozen(base)

    def adapted(seed: int) -> DDPM:
        made = retraining._adapted(frozen, seed)
        made.network.double()
        return made

    def trained(of: DDPM) -> torch.Tensor:
        return torch.cat([weight.detach().flatten() for weight in of.network.parameters() if weight.requires_grad])

    crew = [adapted(place) for place in range(3)]
    assert together(crew, data, BASIC, 3) == [None] * 3
    for place, found in enumerate(crew):
        expected = trained(alone(adapted(place), data, BASIC, place))
        assert (expected - trained(adapted(place))).norm() > 1e-4
        assert torch.allclose(trained(found), expected, rtol=0, atol=1e-12)


def test_one_that_diverges_is_told_and_spoils_no_other():
    data, crew = data_of(model(0)), [model(0), model(1)]
    with torch.no_grad():
        next(crew[0].network.parameters()).fill_(float("inf"))
    complaints = together(crew, data, BASIC, 2)
    assert complaints[0] == "the training loss became infinite or nan at step 1"
    assert complaints[1] is None
    assert torch.allclose(weights(crew[1]), weights(alone(model(1), data, BASIC, 1)), rtol=0, atol=1e-12)


def test_a_training_that_was_cut_off_goes_on(tmp_path, monkeypatch):
    settings = dataclasses.replace(BASIC, steps=6, ema=0.9)
    data, file = data_of(model(0)), tmp_path / "checkpoint.safetensors"
    monkeypatch.setattr("diffcredit.diffusion.fast.fleet.LOOK_STEPS", 2)
    monkeypatch.setattr("diffcredit.diffusion.checkpoints.CHECKPOINT_SECONDS", -1.0)

    class Stop(Exception):
        pass

    def stop(done: int, total: int) -> None:
        assert total == 6
        if done == 4:
            raise Stop

    def loaded(one: DDPM) -> Fleet:
        fleet = Fleet(one, functions_of(Session(), one, 1, torch.float64), data, settings)
        fleet.load([one], [plan_among(data, PLACES[0], settings, SEEDS[0], one.time_steps)])
        return fleet

    first = model(0)
    with pytest.raises(Stop):
        train_fleet(Session(), loaded(first), [first], checkpoint=file, identity=1, on_step=stop)
    assert torch.equal(weights(first), weights(model(0)))
    seen: list[int] = []
    second = model(0)
    train_fleet(
        Session(), loaded(second), [second], checkpoint=file, identity=1, on_step=lambda done, _: seen.append(done)
    )
    assert seen == [4, 6]  # the state of step 2 was kept
    whole = model(0)
    assert train_fleet(Session(), loaded(whole), [whole]) == [None]
    assert torch.equal(weights(second), weights(whole))
    # of another run, it is not touched
    other, seen = model(0), []
    train_fleet(
        Session(), loaded(other), [other], checkpoint=file, identity=2, on_step=lambda done, _: seen.append(done)
    )
    assert seen == [2, 4, 6]


@pytest.mark.parametrize("scheduler", ["ddim", "pndm"])
def test_images_are_those_of_the_model(scheduler):
    one = model(3)
    one.network.float()
    sampling = Sampling(images=5, steps=4, batch_size=3, scheduler=scheduler, seed=7)
    sampler = FastSampler(model(0), functions_of(Session(), one, 1, torch.float32), sampling)
    found, expected = sampler.sample(one), generate(one, sampling)
    assert found.shape == expected.shape == (5, 8, 8, 3)
    assert np.abs(found.astype(int) - expected).max() <= 1
