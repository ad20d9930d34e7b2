"""Each layer of a fleet against the layers it stands for, in float64: the same numbers."""

import pytest
import torch
from diffusers.models.resnet import ResnetBlock2D
from diffusers.models.upsampling import Upsample2D
from torch import Tensor, nn
from torch.func import functional_call

from diffcredit.diffusion.fast.stacking import CannotStack, Done, Doubled, Norm, StackedConv, StackedLinear, stacked

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


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Embedding(3, 4), "Embedding"),
        (nn.Dropout2d(0.1), "1 is a Dropout2d of 0.1"),
        (nn.Conv2d(4, 4, 3, groups=2), "groups"),
        (nn.LayerNorm(4), "LayerNorm"),
    ],
)
def test_what_cannot_be_stacked_says_why(layer, reason):
    with pytest.raises(CannotStack, match=reason):
        stacked(nn.Sequential(nn.Linear(4, 4), layer), 2, cuda=False)
