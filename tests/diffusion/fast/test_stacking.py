"""Each layer of a fleet against the layers it stands for, in float64: the same numbers."""

import copy

import pytest
import torch
from diffusers.models.normalization import FP32LayerNorm, RMSNorm
from diffusers.models.resnet import ResnetBlock2D
from diffusers.models.upsampling import Upsample2D
from torch import Tensor, nn
from torch.func import functional_call

from diffcredit.diffusion.fast.stacked_layers import StackedEmbedding, StackedNorm
from diffcredit.diffusion.fast.stacking import CannotStack, Done, Doubled, Norm, StackedConv, StackedLinear, stacked
from diffcredit.retraining.pruning import prune_transformer

from .. import tiny_transformers

MODELS, IMAGES = 3, 4


def images(*shape: int) -> Tensor:
    return torch.randn(MODELS * IMAGES, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def layers(make) -> list[nn.Module]:
    torch.manual_seed(0)
    found = [make().double() for _ in range(MODELS)]
    for layer in found:
        for weight in layer.parameters():
            nn.init.normal_(weight)
    return found


def joined(modules: list[nn.Module]) -> dict[str, Tensor]:
    return {
        name: torch.stack([module.get_parameter(name).detach() for module in modules]).requires_grad_()
        for name, _ in modules[0].named_parameters()
    }


def compare(singles: list[nn.Module], together: nn.Module, x: Tensor, *more: Tensor | None) -> None:
    """Outputs, and gradients for the first input and all weights."""
    count = len(singles)
    weights, seen, own = joined(singles), x.clone().requires_grad_(), x.clone().requires_grad_()
    given = weights if count > 1 else {name: weight[0] for name, weight in weights.items()}
    y = functional_call(together, given, (seen, *more))
    others = [[None] * count if each is None else each.chunk(count) for each in more]
    parts = zip(own.chunk(count), *others, strict=True)
    expected = torch.cat([single(*part) for single, part in zip(singles, parts, strict=True)])
    torch.testing.assert_close(y, expected, rtol=1e-11, atol=1e-11)
    slope = torch.randn(y.shape, dtype=torch.float64)
    found = torch.autograd.grad(y, [seen, *weights.values()], slope)
    theirs = torch.autograd.grad(expected, [own, *(w for single in singles for w in single.parameters())], slope)
    torch.testing.assert_close(found[0], theirs[0], rtol=1e-10, atol=1e-10)
    for place, slopes in enumerate(found[1:]):
        torch.testing.assert_close(slopes, torch.stack(theirs[1 + place :: len(weights)]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("side", "stride", "padding", "bias"),
    [(3, 1, 1, True), (3, 2, 1, True), (3, 2, 0, False), (1, 1, 0, True), (5, 1, 2, True)],
)
def test_convolutions(side, stride, padding, bias):
    singles = layers(lambda: nn.Conv2d(6, 10, side, stride, padding, bias=bias))
    compare(singles, StackedConv(singles[0], cuda=False), images(6, 9, 9))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2, "stride": 2},
        {"kernel_size": (2, 3), "stride": (2, 3)},
        {"kernel_size": (3, 1), "padding": (1, 0)},
        {"kernel_size": 2, "stride": 2, "padding": 1},
        {"kernel_size": 3, "padding": 1, "groups": 6},
        {"kernel_size": 3, "padding": 2, "dilation": 2},
    ],
    ids=str,
)
def test_convolutions_of_transformers(options, bias):
    """On images that patches of 2 do not fill."""
    singles = layers(lambda: nn.Conv2d(6, 12, **options, bias=bias))
    compare(singles, stacked(nn.Sequential(singles[0]), MODELS, cuda=False)[0], images(6, 9, 12))


@pytest.mark.parametrize("count", [1, MODELS])
@pytest.mark.parametrize("shape", [(), (5,)])
def test_embeddings(shape, count):
    singles = layers(lambda: nn.Embedding(7, 6))[:count]
    weights = joined(singles) if count > 1 else {"weight": singles[0].weight}
    together = StackedEmbedding(singles[0])
    index = torch.randint(0, 7, (count * IMAGES, *shape), generator=torch.Generator().manual_seed(1))
    y = functional_call(together, weights, (index,))
    expected = torch.cat([single(part) for single, part in zip(singles, index.chunk(count), strict=True)])
    assert torch.equal(y, expected)
    slope = torch.randn_like(y)
    (found,) = torch.autograd.grad(y, [weights["weight"]], slope)
    theirs = torch.autograd.grad(expected, [single.weight for single in singles], slope)
    torch.testing.assert_close(found, torch.stack(theirs).reshape(found.shape), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LayerNorm(6),
        lambda: nn.LayerNorm((4, 6), bias=False),
        lambda: nn.RMSNorm(6, eps=1e-6),
        lambda: RMSNorm(6, eps=1e-6, bias=True),
        lambda: RMSNorm(6, eps=1e-6),
        lambda: FP32LayerNorm(6),
    ],
)
@pytest.mark.parametrize("shape", [(4, 6), (3, 4, 6)])
def test_norms_with_weights(make, shape):
    singles = layers(make)
    together = stacked(nn.Sequential(singles[0]), MODELS, cuda=False)[0]
    assert type(together) is StackedNorm
    if type(singles[0]) is FP32LayerNorm:  # rounds float64
        x = images(*shape).float()
        weights = {name: weight.float() for name, weight in joined(singles).items()}
        expected = [single.float()(part) for single, part in zip(singles, x.chunk(MODELS), strict=True)]
        torch.testing.assert_close(functional_call(together, weights, (x,)), torch.cat(expected))
        return
    compare(singles, together, images(*shape))


def test_norms_are_rounded_once_in_bf16():
    (single, *others) = layers(lambda: nn.LayerNorm(6))
    together = stacked(nn.Sequential(single), MODELS, cuda=False)[0]
    weights = {name: weight.bfloat16() for name, weight in joined([single, *others]).items()}
    x = images(5, 6).bfloat16()
    expected = [each.bfloat16()(part) for each, part in zip([single, *others], x.chunk(MODELS), strict=True)]
    assert torch.equal(functional_call(together, weights, (x,)), torch.cat(expected))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (7, 5)])
def test_linear_layers(shape, bias):
    singles = layers(lambda: nn.Linear(5, 8, bias=bias))
    compare(singles, StackedLinear(singles[0], cuda=False), images(*shape))


def test_group_norm_keeps_channels_last_and_so_does_its_gradient():
    (single, *_) = layers(lambda: nn.GroupNorm(4, 12))
    x = images(12, 6, 5).contiguous(memory_format=torch.channels_last).requires_grad_()
    y = Norm(single, cuda=False)(x)
    assert y.is_contiguous(memory_format=torch.channels_last)
    (slope,) = torch.autograd.grad(y.square().sum(), x)
    assert slope.is_contiguous(memory_format=torch.channels_last)


def test_doubling_pixels_is_what_diffusers_does():
    layer = Upsample2D(6, use_conv=True, out_channels=5).double()
    x = images(6, 4, 3).requires_grad_()
    for size in (None, (7, 9)):
        y, expected = Doubled(layer.conv)(x, size), layer(x, size)
        assert torch.allclose(y, expected, rtol=1e-13, atol=1e-13)
        slope = torch.randn_like(expected)
        assert torch.allclose(
            *(torch.autograd.grad(each, x, slope)[0] for each in (y, expected)), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("count", [1, MODELS])
@pytest.mark.parametrize(
    ("options", "joined_up"),
    [
        ({}, True),
        ({"up": True}, True),
        ({"temb_channels": None}, True),
        ({"skip_time_act": True, "output_scale_factor": 2.0}, True),
        ({"time_embedding_norm": "scale_shift"}, False),
        ({"non_linearity": "gelu"}, False),
    ],
    ids=str,
)
def test_residual_blocks_with_norms_joined_are_diffusers(options, joined_up, count):
    settings = {"in_channels": 8, "out_channels": 12, "temb_channels": 16, "groups": 4, "eps": 1e-3, **options}
    singles = layers(lambda: ResnetBlock2D(**settings))[:count]
    together = stacked(singles[0], count, cuda=False)
    assert isinstance(together.get_submodule("nonlinearity"), Done) is joined_up
    times = None if settings["temb_channels"] is None else images(16)[: count * IMAGES] * 2
    compare(singles, together, images(8, 6, 4)[: count * IMAGES], times)


def test_what_is_frozen_is_shared():
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    network[0].requires_grad_(False)
    fleet = stacked(network, 2, cuda=False)
    assert type(fleet[0]) is nn.Linear
    assert type(fleet[1]) is StackedLinear
    assert type(network[1]) is nn.Linear
    assert all(mine is own for mine, own in zip(fleet.parameters(), network.parameters(), strict=True)), "no copy"


TRANSFORMERS = ("DiT", "SD3", "Flux", "Flux2", "QwenImage", "Sana", "PixArt")


class Called(nn.Module):
    """A transformer and its call with the images of some seeds."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.double()

    def forward(self, *seeds: int) -> Tensor:
        return tiny_transformers.call(self.network, *seeds)


def of_one_shape(network: nn.Module) -> list[nn.Module]:
    other = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return [Called(network), Called(other)]


@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("kind", [f"{name}Transformer2DModel" for name in TRANSFORMERS])
def test_whole_transformers(kind, share):
    """Each of two models with its own two images, texts or labels, and times; with all their heads, and pruned."""
    network = tiny_transformers.build(kind)
    singles = of_one_shape(network if share == 1 else prune_transformer(network, share, multiple=4))
    weights, together = joined(singles), stacked(singles[0], 2, cuda=False)
    found = functional_call(together, weights, (5, 6))
    expected = torch.cat([single(seed) for single, seed in zip(singles, (5, 6), strict=True)])
    # diffusers computes some norms and embeddings of the time in float32
    assert (found - expected).norm() < 1e-6 * expected.norm()
    slope = torch.randn_like(found)
    slopes = torch.autograd.grad(found, list(weights.values()), slope, materialize_grads=True)
    own = torch.autograd.grad(
        expected, [w for single in singles for w in single.parameters()], slope, materialize_grads=True
    )
    whole = torch.cat([each.flatten() for each in own]).norm()
    for place, name in enumerate(weights):
        theirs = torch.stack(own[place :: len(weights)])
        assert (slopes[place] - theirs).norm() < 1e-6 * (theirs.norm() + 1e-3 * whole), name


def test_z_image_has_lists_of_texts():
    with pytest.raises(CannotStack, match=r"x_pad_token"):
        stacked(tiny_transformers.build("ZImageTransformer2DModel"), 2, cuda=False)


def half_frozen() -> nn.Linear:
    layer = nn.Linear(4, 4)
    layer.bias.requires_grad_(False)
    return layer


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Embedding(3, 4, padding_idx=0), "1 is an Embedding with padding_idx"),
        (nn.Dropout2d(0.1), "1 is a Dropout2d of 0.1"),
        (nn.Conv2d(4, 4, 3, padding="same"), "1 is a Conv2d with padding 'same'"),
        (nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"), "1 is a Conv2d with padding .* circular"),
        (nn.PReLU(), "1 is a PReLU with weight"),
        (half_frozen(), "1 is a Linear that is frozen in part"),
    ],
)
def test_what_cannot_be_stacked_says_why(layer, reason):
    with pytest.raises(CannotStack, match=reason):
        stacked(nn.Sequential(nn.Linear(4, 4), layer), 2, cuda=False)
