"""Many networks of one architecture as one: their images one model after another in one batch.

What one network sees as (b, …), K of them see as (K·b, …). Layers whose weights are trained multiply each model's
images with its own, which have a leading dimension K; all else in a network works on each image alone and stays as
it is, frozen layers included. So diffusers' own code runs the fleet, and a pruned network or an adapter is as good as
any.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from diffusers.models.upsampling import Upsample2D
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from diffcredit.diffusion.fast.normalising import Norm, join
from diffcredit.errors import DiffcreditError


class CannotStack(DiffcreditError):
    """A network that the fast path cannot run; the message says why."""


def stacked(network: nn.Module, count: int, *, cuda: bool) -> nn.Module:
    """A copy of ``network`` for ``count`` models, whose trained weights (K, …) are to be given at each call
    (:func:`torch.func.functional_call`); of one model, as they are."""
    for name, module in network.named_modules():
        if isinstance(module, _DropoutNd) and module.p > 0:
            raise CannotStack(f"{name} drops out {module.p:g} of its inputs at random")
    # what draws random numbers is refused, so that training is no other mode; in it, diffusers copies tensors
    fleet = copy.deepcopy(network).eval()
    for name, module in list(fleet.named_modules()):
        if type(module) is nn.GroupNorm and module.affine:
            fleet.set_submodule(name, Norm(module, cuda=cuda))
        elif _doubles(module):
            fleet.set_submodule(name, Doubled(module.conv))
        elif count == 1 and cuda and type(module) is nn.Conv2d and _is_odd(module):
            fleet.set_submodule(name, StackedConv(module, cuda=cuda))
    if count > 1:
        _give_each_its_own(fleet, cuda=cuda)
    join(fleet)
    return fleet


def _give_each_its_own(fleet: nn.Module, *, cuda: bool) -> None:
    """Layers that are trained become those of many models."""
    for name, module in list(fleet.named_modules()):
        own = [key for key, weight in module.named_parameters(recurse=False) if weight.requires_grad]
        if type(module) is nn.Conv2d and own:
            fleet.set_submodule(name, StackedConv(module, cuda=cuda))
        elif type(module) is nn.Linear and own:
            fleet.set_submodule(name, StackedLinear(module))
        elif own and not isinstance(module, Norm):
            raise CannotStack(f"{name} is a {type(module).__name__}")


class Doubled(nn.Module):
    """diffusers' Upsample2D with a convolution: each pixel four times, then the convolution. Pixels are repeated by
    views, whose gradient is a sum, and not by an index, whose gradient is scattered with atomic additions."""

    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.conv = convolution  # by the name that it had, so that its weights have theirs

    def forward(self, x: Tensor, output_size: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        if output_size is not None:
            return self.conv(F.interpolate(x, size=output_size, mode="nearest"))
        b, c, h, w = x.shape
        nhwc = x.permute(0, 2, 3, 1)[:, :, None, :, None].expand(b, h, 2, w, 2, c).reshape(b, 2 * h, 2 * w, c)
        return self.conv(nhwc.permute(0, 3, 1, 2))


class StackedLinear(nn.Module):
    """K linear layers, weights (K, o, i) and biases (K, o): (K·b, …, i) → (K·b, …, o)."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(self.weight.shape[0], -1, x.shape[-1])
        y = _product(rows, self.weight, self.bias)
        return y.reshape(*x.shape[:-1], -1)


class StackedConv(nn.Module):
    """K convolutions, weights (K, o, i, r, r) and biases (K, o): (K·b, i, h, w) → (K·b, o, h', w'). Or one, with weights
    (o, i, r, r) and (o,)."""

    def __init__(self, layer: nn.Conv2d, *, cuda: bool) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        if layer.groups != 1 or layer.dilation != (1, 1) or isinstance(layer.padding, str):
            raise CannotStack("a convolution has groups, a dilation or a named padding")
        self.stride, self.padding = layer.stride, layer.padding
        square = layer.kernel_size in ((1, 1), (3, 3)) and len({*self.stride}) == len({*self.padding}) == 1
        self.convolved: Callable[..., Tensor] | None = None
        if cuda and square:
            from diffcredit.diffusion.fast.convolution import convolved  # which needs Triton

            self.convolved = convolved

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        if weight.ndim == 4:
            weight, bias = weight[None], None if bias is None else bias[None]
        each = x.unflatten(0, (weight.shape[0], -1))  # (K, b, i, h, w)
        if weight.shape[3:] == (1, 1) and self.stride == (1, 1) and self.padding == (0, 0):
            pixels = each.permute(0, 1, 3, 4, 2)
            y = _product(pixels.flatten(1, 3), weight.flatten(2), bias)
            return y.unflatten(1, pixels.shape[1:4]).permute(0, 1, 4, 2, 3).flatten(0, 1)
        if self.convolved is not None:
            last = weight.permute(0, 1, 3, 4, 2)
            y = self.convolved(each.permute(0, 1, 3, 4, 2), last, bias, self.stride[0], self.padding[0])
            return y.permute(0, 1, 4, 2, 3).flatten(0, 1)
        biases = [None] * len(weight) if bias is None else bias
        return torch.cat(
            [F.conv2d(*own, self.stride, self.padding) for own in zip(each, weight, biases, strict=True)]
        )


def _product(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(K, m, i) and (K, o, i) → (K, m, o). Not by baddbmm, which first copies the bias to all rows."""
    y = torch.bmm(rows, weight.transpose(1, 2))
    return y if bias is None else y + bias[:, None]


def _is_odd(layer: nn.Conv2d) -> bool:
    """Whether cuDNN has no fast kernel, or copies the images first: those that images come in and go out by."""
    plain = layer.groups == 1 and layer.dilation == (1, 1) and layer.kernel_size == (3, 3)
    return plain and layer.padding == (1, 1) and bool(layer.in_channels % 8 or layer.out_channels % 8)


def _doubles(module: nn.Module) -> bool:
    return (
        type(module) is Upsample2D
        and module.use_conv
        and not module.use_conv_transpose
        and module.interpolate
        and module.norm is None
        and isinstance(getattr(module, "conv", None), nn.Conv2d)
    )
