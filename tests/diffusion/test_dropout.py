"""Dropout in training: from (seed, step) alone, and nobody else's random numbers change."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from diffcredit.diffusion import Training, checkpoints
from diffcredit.diffusion.dropout import CountedDropout, seeded_dropout
from diffcredit.diffusion.training import train

from . import plain, tiny

SETTINGS = Training(steps=6, batch_size=4, learning_rate=1e-2)


def trained(checkpoint: Path | None = None, cut: int | None = None) -> dict[str, Tensor]:
    model = plain.Plain(dropout=0.5)
    train(model, plain.data(), SETTINGS, seed=3, checkpoint=checkpoint, on_step=tiny.cut_at(cut))
    return plain.weights(model)


@pytest.mark.parametrize("cut", [2, 4])
def test_cut_off_and_taken_up_again(cut, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", -1.0)
    uninterrupted = trained()
    with pytest.raises(tiny.PowerCut):
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


def test_masks_differ_between_steps_places_and_layers():
    network, masks = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.25)), {}
    with seeded_dropout(network, torch.device("cpu")) as reseed:
        for key in (-5, 2**40):
            for place in (0, 4):
                for layer in range(2):
                    reseed(key, place)
                    masks[key, place, layer] = network[layer](torch.ones(4, 100))
        reseed(2**40, 0)
        assert network[0](torch.ones(4, 100)).equal(masks[2**40, 0, 0])
    assert len({tuple(mask.flatten().tolist()) for mask in masks.values()}) == 8
    assert {*torch.stack([*masks.values()]).unique().tolist()} == {0.0, 2.0, float(torch.tensor(4 / 3))}
    assert [type(layer) for layer in network] == [nn.Dropout] * 2


def test_a_mask_belongs_to_a_sample_whatever_comes_with_it():
    network = nn.Sequential(nn.Dropout(0.3))
    x = torch.ones(6, 5, 7)
    with seeded_dropout(network, torch.device("cpu")) as reseed:
        reseed(11, 0)
        whole = network(x)
        reseed(11, 4)
        assert network(x[4:]).equal(whole[4:])
    # and to a model, whatever others are trained beside it
    dropout = CountedDropout(0.3, 0)
    dropout.keys = torch.tensor([9, 11])
    assert dropout(torch.cat([x, x]))[6:].equal(whole)
    dropout.keys = None
    assert dropout(x) is x


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_the_share_is_what_it_is_said_to_be(share):
    dropout = CountedDropout(share, 3)
    dropout.keys = torch.tensor([1])
    seen = dropout(torch.ones(20, 10_000, dtype=torch.float64))
    deviation = (share * (1 - share) / seen.numel()) ** 0.5
    assert abs(float((seen == 0).double().mean()) - share) < 4 * deviation
    assert abs(float(seen.mean()) - 1) < 4 * deviation / (1 - share)
    # neighbours, samples and steps know nothing of each other
    dropped = (seen == 0).double() - share
    dropout.keys = torch.tensor([2])
    other = (dropout(torch.ones(20, 10_000)) == 0).double() - share
    bound = 4 * share * (1 - share) / seen.numel() ** 0.5
    for one, two in ((dropped[:, 1:], dropped[:, :-1]), (dropped[1:], dropped[:-1]), (dropped, other)):
        assert abs(float((one * two).mean())) < bound


def test_kinds_that_do_not_count_follow_from_key_and_place_too():
    network = nn.Sequential(nn.Dropout2d(0.5))
    torch.manual_seed(5)
    with seeded_dropout(network, torch.device("cpu")) as reseed:
        masks = []
        for key, place in ((1, 0), (1, 4), (2, 0), (1, 0)):
            reseed(key, place)
            masks.append(network(torch.ones(8, 20, 2, 2)))
    assert masks[0].equal(masks[3])
    assert not masks[0].equal(masks[1])
    assert not masks[0].equal(masks[2])
    after = torch.rand(2)
    torch.manual_seed(5)
    assert torch.rand(2).equal(after)
