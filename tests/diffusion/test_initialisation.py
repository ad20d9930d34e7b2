"""Networks whose weights are drawn anew."""

import math

import pytest
import torch
from torch import Tensor, nn

from diffcredit.diffusion import networks
from diffcredit.errors import UserError
from diffcredit.retraining.pruning import prune_transformer

from .tiny_transformers import CONFIGS, KINDS, build

UNET = {
    "sample_size": 8,
    "in_channels": 3,
    "out_channels": 3,
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "attention_head_dim": 8,
}


def alike(own: Tensor, fresh: Tensor) -> bool:
    """Whether two draws have the same mean and standard deviation, within six times their errors."""
    std, count = fresh.std(), fresh.numel()
    return bool(
        abs(own.std() / std - 1) < 6 / math.sqrt(count) and abs(own.mean() - fresh.mean()) < 9 * std / math.sqrt(count)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_is_as_on_construction(kind):
    old, network, fresh = build(kind), build(kind), networks.build(CONFIGS[kind], 5, kind)
    networks.reinitialise(network, 1)
    expected = dict(fresh.named_parameters())
    for name, parameter in network.named_parameters():
        assert not parameter.equal(old.get_parameter(name)), name
        if len(expected[name].unique()) == 1:
            assert parameter.equal(expected[name]), name
        else:
            assert not parameter.equal(expected[name]), name
            assert parameter.numel() < 64 or alike(parameter, expected[name]), name
    for name, buffer in network.named_buffers():
        assert buffer.equal(dict(fresh.named_buffers())[name])


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_weights(kind):
    one, again, other = build(kind, 1), build(kind, 2), build(kind, 1)
    state = torch.get_rng_state()
    for network, seed in ((one, 4), (again, 4), (other, 5)):
        networks.reinitialise(network, seed)
    assert torch.get_rng_state().equal(state)
    for name, parameter in one.named_parameters():
        assert parameter.equal(again.get_parameter(name)), name
        assert parameter.equal(other.get_parameter(name)) == (len(parameter.unique()) == 1), name


@pytest.mark.parametrize("kind", ["DiTTransformer2DModel", "SD3Transformer2DModel"])
def test_pruned_shapes_stay_and_set_the_scale(kind):
    """A linear layer draws from ±1/√inputs, of those that are left."""
    pruned = prune_transformer(build(kind), 0.65, multiple=4)
    shapes = {name: tensor.shape for name, tensor in pruned.state_dict().items()}
    networks.reinitialise(pruned, 3)
    assert shapes == {name: tensor.shape for name, tensor in pruned.state_dict().items()}
    mlp = pruned.transformer_blocks[0].ff.net[2]
    assert mlp.in_features < 128
    assert 0.95 / math.sqrt(mlp.in_features) < mlp.weight.abs().max() <= 1 / math.sqrt(mlp.in_features)


def test_a_unet_is_drawn_as_ever():
    """In the order of its modules, each by its own method: what older studies' untrained models were drawn by."""
    network, expected = (networks.build(UNET, seed) for seed in (1, 2))
    networks.reinitialise(network, 7)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        for module in expected.modules():
            if isinstance(module, nn.Conv2d | nn.Linear | nn.GroupNorm):
                module.reset_parameters()
    assert all(tensor.equal(expected.state_dict()[name]) for name, tensor in network.state_dict().items())


def test_labels_are_forgotten():
    network = networks.build(UNET | {"num_class_embeds": 4}, 1)
    before = network.class_embedding.weight.detach().clone()
    networks.reinitialise(network, 7)
    assert not torch.isclose(network.class_embedding.weight, before).any()


def test_fourier_features_which_are_never_trained_stay():
    network = networks.build(UNET | {"time_embedding_type": "fourier"}, 1)
    before = network.time_proj.weight.clone()
    networks.reinitialise(network, 7)
    assert network.time_proj.weight.equal(before)


def test_a_parameter_that_is_unknown_is_not_passed_over():
    network = networks.build(UNET, 1)
    network.mid_block.scale = nn.Parameter(torch.ones(3))
    with pytest.raises(UserError, match=r"^model: the parameter 'mid_block.scale' of UNetMidBlock2D cannot be drawn"):
        networks.reinitialise(network, 7)
