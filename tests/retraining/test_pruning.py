import copy

import pytest
import torch
from diffusers.models.resnet import ResnetBlock2D
from torch import Tensor, nn

from diffcredit.diffusion import networks
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.networks import parameter_count
from diffcredit.errors import UserError
from diffcredit.retraining.pruning import prune, prune_to

GROUPS, LAYERS = 4, (nn.Conv2d, nn.Linear)


@pytest.fixture(scope="module")
def model() -> DDPM:
    return DDPM.create("tiny", 8, seed=2)


@pytest.fixture(scope="module")
def halved(model) -> nn.Module:
    return prune(model.network, 0.5, model.example())


def blocks(network: nn.Module) -> dict[str, ResnetBlock2D]:
    return {name: module for name, module in network.named_modules() if isinstance(module, ResnetBlock2D)}


def kept(bias: Tensor, original: Tensor) -> list[int]:
    """Which outputs a layer kept, told by its biases, which are all different."""
    assert len(set(original.tolist())) == len(original)
    return [original.tolist().index(value) for value in bias.tolist()]


@pytest.mark.parametrize("share", [0.3, 0.55, 0.75])
def test_the_share_of_parameters_is_reached(model, share):
    small = prune_to(model.network, share, model.example())
    assert sum(p.numel() for p in small.parameters()) / sum(p.numel() for p in model.network.parameters()) == (
        pytest.approx(share, abs=0.1)
    )


def test_what_is_kept_are_exact_slices(model, halved):
    originals = dict(model.network.named_modules())
    layers = [(name, layer) for name, layer in halved.named_modules() if isinstance(layer, LAYERS)]
    assert len(layers) > 40
    for name, layer in layers:
        original = originals[name]
        outputs = kept(layer.bias, original.bias)
        # inputs: the original's slices that the first output's slices equal, bit for bit
        first = original.weight[outputs[0]]
        inputs = [next(j for j in range(len(first)) if first[j].equal(piece)) for piece in layer.weight[0]]
        assert outputs == sorted(set(outputs))
        assert inputs == sorted(set(inputs))
        assert layer.weight.equal(original.weight[outputs][:, inputs])


def test_every_width_is_halved_but_the_images(model, halved):
    assert halved.conv_in.weight.shape == (8, 3, 3, 3)
    assert halved.conv_out.weight.shape == (3, 8, 3, 3)
    assert halved.conv_out.bias.equal(model.network.conv_out.bias)
    for name, block in blocks(halved).items():
        assert block.conv1.out_channels * 2 == blocks(model.network)[name].conv1.out_channels
        assert block.norm2.num_channels == block.conv1.out_channels


def test_the_largest_joint_norms_are_kept(model, halved):
    """A block's inner channel is made by conv1 and time_emb_proj and read by conv2; the channels at one place
    of all norm groups go together."""
    for name, block in blocks(model.network).items():
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


def test_faint_channels_are_the_ones_to_go(model):
    """With half of the inner channels 100 times fainter, exactly these go."""
    network = copy.deepcopy(model.network)
    faint = {}
    for index, (name, block) in enumerate(blocks(network).items()):
        size = block.conv1.out_channels // GROUPS
        # other places in every block
        places = [(index + k) % size for k in range(size // 2)]
        faint[name] = {group * size + place for group in range(GROUPS) for place in places}
        with torch.no_grad():
            for channel in faint[name]:
                for row in (block.conv1.weight, block.time_emb_proj.weight):
                    row[channel] *= 0.01
                block.conv2.weight[:, channel] *= 0.01
    small = blocks(prune(network, 0.5, model.example()))
    for name, block in blocks(network).items():
        remaining = set(kept(small[name].conv1.bias, block.conv1.bias))
        assert remaining == set(range(block.conv1.out_channels)) - faint[name]


def test_the_original_stays_as_it_was(model):
    before = copy.deepcopy(model.network.state_dict())
    prune_to(model.network, 0.55, model.example())
    after = model.network.state_dict()
    assert all(after[name].equal(tensor) for name, tensor in before.items())


def test_pruning_again_gives_the_same(model, halved):
    again = prune(model.network, 0.5, model.example()).state_dict()
    assert again.keys() == halved.state_dict().keys()
    assert all(again[name].equal(tensor) for name, tensor in halved.state_dict().items())


def test_pruning_leaves_nothing_behind_in_the_library(model):
    import gc
    import weakref

    small = prune(model.network, 0.5, model.example())
    norm = weakref.ref(small.conv_norm_out)
    del small
    gc.collect()
    assert norm() is None


def test_a_pruned_network_can_be_used_and_trained(model, halved):
    network = copy.deepcopy(halved)
    x, t = torch.randn(2, 3, 8, 8), torch.tensor([0, 999])
    out = network(x, t).sample
    assert out.shape == x.shape
    out.square().mean().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in network.parameters())


def test_a_share_that_the_widths_do_not_allow_is_refused():
    # as many groups as channels: no channel can go
    config = DDPM.create("tiny", 8, 0).config | {"norm_num_groups": 16, "block_out_channels": (16, 16, 16)}
    model = DDPM(networks.build(config, 0), config)
    with pytest.raises(UserError, match=r"retraining\.parameters: 0\.3 cannot be reached; .* keep 0\.\d\d of"):
        prune_to(model.network, 0.3, model.example())


def test_a_share_near_one_keeps_everything(model):
    assert parameter_count(prune_to(model.network, 0.99, model.example())) == parameter_count(model.network)


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.36, 0.6, 0.97])
def test_every_head_of_an_attention_keeps_the_same_channels(model, ratio):
    small = prune(model.network, ratio, model.example())
    for name in ("to_q", "to_k", "to_v"):
        original = getattr(model.network.mid_block.attentions[0], name)
        channels = kept(getattr(small.mid_block.attentions[0], name).bias, original.bias)
        first, second = ([c % 16 for c in channels if c // 16 == head] for head in (0, 1))
        assert first == second != []
    assert small(torch.zeros(1, 3, 8, 8), torch.tensor([5])).sample.isfinite().all()


def test_the_papers_network():
    """A quarter of the channels of Ho et al.'s CIFAR network: 96 and 192 remain, 20.13 M parameters."""
    model = DDPM.create("ddpm-cifar", 32, 0)
    small = prune(model.network, 0.25, model.example())
    assert {block.conv1.out_channels for block in blocks(small).values()} == {96, 192}
    assert parameter_count(small) / 1e6 == pytest.approx(20.13, abs=0.005)
    assert small(torch.zeros(1, 3, 32, 32), torch.tensor([5])).sample.shape == (1, 3, 32, 32)
