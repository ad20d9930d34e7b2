import copy
import gc
import math
import re
import weakref

import numpy as np
import pytest
import torch
from diffusers.models.attention_processor import Attention
from diffusers.models.resnet import ResnetBlock2D
from diffusers.models.unets.unet_2d import UNet2DModel
from torch import Tensor, nn

from diffcredit.diffusion import networks
from diffcredit.diffusion.networks import PRESETS, parameter_count
from diffcredit.errors import UserError
from diffcredit.retraining.pruning import prune
from diffcredit.retraining.pruning.structure import Coupled, Structure, trace, widths_for

GROUPS, LAYERS = 4, (nn.Conv2d, nn.Linear)
TINY = {"sample_size": 8, "in_channels": 3, "out_channels": 3, **PRESETS["tiny"]}
EXAMPLE = {"sample": torch.zeros(1, 3, 8, 8), "timestep": torch.ones(1, dtype=torch.long)}


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return networks.build(TINY, 2)


HALF = parameter_count(networks.build({**TINY, "block_out_channels": (8, 16, 16), "attention_head_dim": 8}, 0)) + 256
"""The parameters of the same U-Net at half of every width: 16/2 more inputs, which are no channels, are read by the
32 outputs of the time embedding's first layer."""


@pytest.fixture(scope="module")
def halved(network) -> nn.Module:
    return prune(network, HALF, EXAMPLE)


def blocks(network: nn.Module) -> dict[str, ResnetBlock2D]:
    return {name: module for name, module in network.named_modules() if isinstance(module, ResnetBlock2D)}


def kept(bias: Tensor, original: Tensor) -> list[int]:
    """Which outputs a layer kept, told by its biases, which are all different."""
    assert len(set(original.tolist())) == len(original)
    return [original.tolist().index(value) for value in bias.tolist()]


def output(network: nn.Module, side: int = 8) -> Tensor:
    x = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return network(x, torch.tensor([3, 700])).sample


# What goes


def test_what_is_kept_are_exact_slices(network, halved):
    originals = dict(network.named_modules())
    layers = [(name, layer) for name, layer in halved.named_modules() if isinstance(layer, LAYERS)]
    assert len(layers) > 40
    for name, layer in layers:
        # queries make up for the smaller scale of narrower heads: 1/√8 in place of 1/√16
        scale = math.sqrt(2) if name.endswith("to_q") else 1.0
        weight, bias, original = layer.weight * scale, layer.bias * scale, originals[name]
        near = {"rtol": 1e-6, "atol": 0.0} if scale != 1 else {"rtol": 0.0, "atol": 0.0}
        outputs = [(original.bias - value).abs().argmin().item() for value in bias]
        # inputs: the original's slices that the first output's slices equal
        first = original.weight[outputs[0]]
        inputs = [next(j for j in range(len(first)) if first[j].allclose(piece, **near)) for piece in weight[0]]
        assert outputs == sorted(set(outputs))
        assert inputs == sorted(set(inputs))
        assert weight.allclose(original.weight[outputs][:, inputs], **near)
        assert bias.allclose(original.bias[outputs], **near)


def test_every_width_is_halved_but_the_images(network, halved):
    assert parameter_count(halved) == HALF
    assert halved.conv_in.weight.shape == (8, 3, 3, 3)
    assert halved.conv_out.weight.shape == (3, 8, 3, 3)
    assert halved.conv_out.bias.equal(network.conv_out.bias)
    for name, block in blocks(halved).items():
        assert block.conv1.out_channels * 2 == blocks(network)[name].conv1.out_channels
        assert block.norm2.num_channels == block.conv1.out_channels


def test_the_largest_joint_norms_are_kept(network, halved):
    """A block's inner channel is made by conv1 and time_emb_proj and read by conv2; the channels at one place
    of all norm groups go together."""
    for name, block in blocks(network).items():
        joint = (
            block.conv1.weight.square().sum(dim=(1, 2, 3))
            + block.time_emb_proj.weight.square().sum(dim=1)
            + block.conv2.weight.square().sum(dim=(0, 2, 3))
        )
        size = len(joint) // GROUPS
        places = joint.view(GROUPS, size).sum(dim=0).topk(size // 2).indices
        expected = sorted(group * size + place for group in range(GROUPS) for place in places.tolist())
        small = blocks(halved)[name]
        assert kept(small.conv1.bias, block.conv1.bias) == expected
        assert kept(small.time_emb_proj.bias, block.time_emb_proj.bias) == expected


def test_removing_linear_channels_that_are_zero_changes_nothing(network):
    """Half of the time embedding's channels and of every head's are zero: pruning them is masking them."""
    network = copy.deepcopy(network)
    attention = network.mid_block.attentions[0]
    heads = [c for c in range(32) if c % 16 < 8]  # two heads of 16
    with torch.no_grad():
        for layer in (network.time_embedding.linear_1, network.time_embedding.linear_2):
            layer.weight[::2], layer.bias[::2] = 0, 0
        for layer in (attention.to_q, attention.to_k, attention.to_v):
            layer.weight *= 10  # attention that is far from even, so that its scale matters
            layer.weight[heads], layer.bias[heads] = 0, 0

    def norms(channels: Coupled) -> Tensor:
        return network.get_submodule(channels.name).weight.flatten(1).norm(dim=1)

    small = prune(network, 0.95, EXAMPLE, scores=norms)
    assert widths_of(small) == widths_of(network)
    assert small.mid_block.attentions[0].to_q.out_features < 32
    assert small.time_embedding.linear_1.out_features < 64
    assert small.time_embedding.linear_2.out_features < 64
    assert output(small).allclose(output(network), atol=1e-6)
    assert not output(small).allclose(output(networks.build(TINY, 3)), atol=1e-2)


def test_a_class_embedding_keeps_the_channels_of_the_time_embedding_it_is_added_to():
    """The first 24 of 64 channels of both are zero: pruning them is masking them. Their parameters are counted."""
    network = networks.build(TINY | {"num_class_embeds": 4}, 2)
    with torch.no_grad():
        for parameter in (*network.time_embedding.linear_2.parameters(), network.class_embedding.weight.T):
            parameter[:24] = 0

    def norms(channels: Coupled) -> Tensor:
        maker = channels.name.replace("class_embedding", "time_embedding.linear_2")
        return network.get_submodule(maker).weight.flatten(1).norm(dim=1)

    example = EXAMPLE | {"class_labels": torch.zeros(1, dtype=torch.long)}
    small = prune(network, 0.95, example, scores=norms)
    assert widths_of(small) == widths_of(network)
    assert small.class_embedding.weight.equal(network.class_embedding.weight[:, 24:])
    assert small.time_embedding.linear_2.bias.equal(network.time_embedding.linear_2.bias[24:])
    _, structure = trace(network, example)
    left = {channels.name: small.get_submodule(channels.name) for channels in structure.coupled}
    widths = [getattr(left[c.name], "embedding_dim", None) or len(left[c.name].weight) for c in structure.coupled]
    assert structure.count(np.array([widths]))[0] == parameter_count(small)


@pytest.mark.parametrize("share", [0.1, 0.97])
def test_every_head_of_an_attention_keeps_the_same_channels(network, share):
    small = prune(network, share, EXAMPLE)
    for name in ("to_k", "to_v"):
        original = getattr(network.mid_block.attentions[0], name)
        channels = kept(getattr(small.mid_block.attentions[0], name).bias, original.bias)
        first, second = ([c % 16 for c in channels if c // 16 == head] for head in (0, 1))
        assert first == second != []
    assert output(small).isfinite().all()


def test_pruning_leaves_nothing_behind_in_the_library(network):
    small = prune(network, 0.5, EXAMPLE)
    norm = weakref.ref(small.conv_norm_out)
    del small
    gc.collect()
    assert norm() is None


# How many parameters are left

ATTENTIVE = TINY | {
    "block_out_channels": (32, 64),
    "norm_num_groups": 8,
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "attention_head_dim": 16,
}


@pytest.mark.parametrize(("config", "share"), [(TINY, 0.12), (ATTENTIVE, 0.45), (TINY, 0.75), (ATTENTIVE, 0.99)])
def test_the_share_of_parameters_is_reached(config, share):
    network = networks.build(config, 0)
    small = prune(network, share, EXAMPLE)
    reached = sum(p.numel() for p in small.parameters()) / sum(p.numel() for p in network.parameters())
    assert reached == pytest.approx(share, rel=0.01)
    assert output(small).isfinite().all()


def widths_of(network: nn.Module) -> tuple[int, ...]:
    """The channels of every resolution, after its down block."""
    return tuple(block.resnets[-1].conv2.out_channels for block in network.down_blocks)


def traced(preset: str, side: int) -> Structure:
    with torch.device("meta"):
        network = UNet2DModel(**networks.preset_config(preset, 3, side, resolution=side))
    example = {"sample": torch.zeros(1, 3, side, side), "timestep": torch.ones(1, dtype=torch.long)}
    return trace(network, example)[1]


@pytest.fixture(scope="module")
def celeba() -> Structure:
    return traced("ldm-celebahq", 64)


def convolutions(structure: Structure, target: int, rel: float) -> set[tuple[int, int]]:
    """The width of each set of channels that convolutions have, before and after pruning."""
    widths = widths_for(structure, target, multiple=8)
    assert structure.count(widths[None])[0] == pytest.approx(target, rel=rel)
    both = zip(structure.coupled, widths, strict=True)
    return {(channels.width, int(width)) for channels, width in both if not channels.linear}


def test_the_papers_networks(celeba):
    """Ho et al.'s CIFAR network with 96 and 192 of its 128 and 256 channels: 19.8 M parameters. Latent diffusion's
    CelebA-HQ network with 128, 224, 352 and 448 channels: 70.9 M parameters."""
    assert convolutions(traced("ddpm-cifar", 32), 19_800_000, rel=0.001) == {(128, 96), (256, 192)}
    assert convolutions(celeba, 70_900_000, rel=0.01) == {(224, 128), (448, 224), (672, 352), (896, 448)}


def test_counting_is_that_of_a_network_built_at_these_widths(celeba):
    """CelebA's network at half of every width, against diffusers' own of these widths."""
    half = PRESETS["ldm-celebahq"] | {"block_out_channels": (112, 224, 336, 448)}
    half |= {"attention_head_dim": 16, "norm_num_groups": 16}
    with torch.device("meta"):
        smaller = UNet2DModel(sample_size=64, in_channels=3, out_channels=3, **half)
    # the time embedding's first layer, of 448 outputs, still reads 224 sines and cosines and not 112
    assert celeba.count(celeba.full[None] // 2)[0] == parameter_count(smaller) + 448 * 112


@pytest.mark.parametrize(("multiple", "share"), [(8, 0.2), (16, 0.4)])
def test_widths_are_multiples(multiple, share):
    network = networks.build(ATTENTIVE, 0)
    small = prune(network, share, EXAMPLE, multiple=multiple)
    for name, layer in small.named_modules():
        if isinstance(layer, LAYERS):
            outputs, inputs = layer.weight.shape[:2]
            assert outputs % multiple == 0 or name == "conv_out"
            assert inputs % multiple == 0 or name == "conv_in"
        elif isinstance(layer, nn.GroupNorm):
            assert layer.num_channels % 8 == 0
        elif isinstance(layer, Attention):
            assert layer.to_q.out_features % layer.heads == 0


def test_a_multiple_that_does_not_fit_gives_way_to_the_norms_groups(network):
    """No width under 16 is a multiple of 16, so the 16 channels go in their norm's 4s."""
    small = prune(network, 0.23, EXAMPLE, multiple=16)
    assert small.conv_in.out_channels in (4, 8, 12)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (0, "0 is not accepted; a share between 0 and 1, or a count up to the model's 267,891 parameters"),
        (-0.5, "-0.5 is not accepted"),
        (1, "1 is not accepted"),
        (1.5, "1.5 is not accepted"),
        (267_892, "267,892 is not accepted"),
        (0.01, r"2,679 parameters \(0\.010 of the model's\) would leave a layer empty; the nearest .*: \d+,\d{3} \("),
    ],
)
def test_what_cannot_be_is_refused(network, parameters, message):
    with pytest.raises(UserError, match=rf"^parameters: {message}"):
        prune(network, parameters, EXAMPLE)


def test_what_the_norms_do_not_allow_is_refused():
    """As many norm groups as channels: no convolution can shrink, only what is linear."""
    network = networks.build(TINY | {"norm_num_groups": 16, "block_out_channels": (16, 16, 16)}, 0)
    with pytest.raises(UserError, match=r"parameters: .* would leave a layer empty; the nearest"):
        prune(network, 0.3, EXAMPLE)


def test_a_gap_between_widths_names_its_ends():
    """32 channels with 16 norm groups can only be halved, and a time embedding in multiples of 64 too."""
    config = {**TINY, "block_out_channels": (32, 32), "norm_num_groups": 16}
    config |= {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
    network = networks.build(config, 0)
    target = round(0.85 * parameter_count(network))
    with pytest.raises(
        UserError, match=rf"parameters: {target:,} .* cannot be reached within 2%; the nearest"
    ) as raised:
        prune(network, target, EXAMPLE, multiple=64)
    below, above = (int(text.replace(",", "")) for text in re.findall(r"([\d,]+) \(", str(raised.value)))
    assert below < 0.98 * target < 1.02 * target < above
    for count in (below, above):
        assert parameter_count(prune(network, count, EXAMPLE, multiple=64)) == count
