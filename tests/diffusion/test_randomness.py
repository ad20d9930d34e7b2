"""Dropout in training: from (seed, step) alone, and nobody else's random numbers change."""

from pathlib import Path

import pytest
import torch
from torch import nn

from diffcredit.diffusion import Training, checkpoints
from diffcredit.diffusion.randomness import own_randomness
from diffcredit.diffusion.training import train

from . import plain, tiny

SETTINGS = Training(steps=6, batch_size=4, learning_rate=1e-2)


class PowerCut(Exception):
    pass


def trained(seed: int = 3, checkpoint: Path | None = None, cut: int | None = None, settings: Training = SETTINGS):
    model = plain.Plain(dropout=0.5)

    def on_step(done: int, total: int) -> None:
        if done == cut:
            raise PowerCut

    train(model, plain.data(), settings, seed=seed, checkpoint=checkpoint, on_step=on_step)
    return plain.weights(model)


@pytest.mark.parametrize("cut", [2, 4])
def test_cut_off_and_taken_up_again(cut, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", -1.0)
    uninterrupted = trained()
    with pytest.raises(PowerCut):
        trained(checkpoint=tmp_path / "run", cut=cut)
    torch.manual_seed(12345)
    assert tiny.same(trained(checkpoint=tmp_path / "run"), uninterrupted)


def test_dropout_follows_from_the_seed_alone_and_leaves_the_callers_numbers():
    torch.manual_seed(1)
    first = trained()
    after = torch.rand(3)
    torch.manual_seed(1)
    assert torch.rand(3).equal(after)
    assert tiny.same(trained(), first)
    # the same data, noises and start, without dropout
    model = plain.Plain()
    train(model, plain.data(), SETTINGS, seed=3)
    assert not tiny.same(plain.weights(model), first)


def test_masks_differ_between_steps_and_between_places():
    network, masks = nn.Dropout(0.5), {}
    with own_randomness(network, torch.device("cpu")) as reseed:
        for step in range(2):
            for place in (0, 4):
                reseed(7, "network", step, place)
                masks[step, place] = network(torch.ones(100))
        reseed(7, "network", 1, 0)
        assert network(torch.ones(100)).equal(masks[1, 0])
    assert len({tuple(mask.tolist()) for mask in masks.values()}) == 4


def test_a_network_without_dropout_is_left_alone():
    with own_randomness(nn.Sequential(nn.Dropout(0.0), nn.Linear(1, 1)), torch.device("cpu")) as reseed:
        inside = torch.get_rng_state()
        reseed(1, 2)
        assert torch.get_rng_state().equal(inside)
    assert inside.equal(torch.random.get_rng_state())
