"""Layers of K networks as one, with weights of a leading dimension K; and layers that compile badly."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diffcredit.diffusion.fast.fusion import parts_of, with_addition
from diffcredit.errors import DiffcreditError

LEAST = 16  # channels from which on the kernels' tiles fit


class CannotStack(DiffcreditError):
    """A network that the fast path cannot run; the message says why."""


class Doubled(nn.Module):
    """diffusers' Upsample2D with a convolution: each pixel four times, then the convolution. Pixels are repeated by
    views, whose gradient is a sum, not by an index, whose gradient needs atomic additions."""

    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.conv = convolution  # under its former name, so that weights keep theirs

    def forward(self, x: Tensor, output_size: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        if output_size is not None:
            return self.conv(F.interpolate(x, size=output_size, mode="nearest"))
        b, c, h, w = x.shape
        nhwc = x.permute(0, 2, 3, 1)[:, :, None, :, None].expand(b, h, 2, w, 2, c).reshape(b, 2 * h, 2 * w, c)
        return self.conv(nhwc.permute(0, 3, 1, 2))


class StackedLinear(nn.Module):
    """K linear layers, weights (K, o, i) and biases (K, o): (K·b, …, i) → (K·b, …, o)."""

    def __init__(self, layer: nn.Linear, *, cuda: bool) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.convolved = _kernel() if cuda and min(layer.in_features, layer.out_features) >= LEAST else None

    def forward(self, x: Tensor) -> Tensor:
        if self.convolved is not None and x.ndim == 3:
            y = self._by_kernel(x)
            return with_addition(y, lambda more: self._by_kernel(x, more))
        rows = x.reshape(self.weight.shape[0], -1, x.shape[-1])
        y = torch.bmm(rows, self.weight.transpose(1, 2))
        if self.bias is not None:
            y = y + self.bias[:, None]  # baddbmm would copy the bias to all rows first
        return y.reshape(*x.shape[:-1], -1)

    def _by_kernel(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Compute it as a convolution of images one pixel wide, with biases and ``added`` fused."""
        assert self.convolved is not None
        weight = self.weight[:, :, None, None]
        pictures = [None if each is None else each.transpose(1, 2).unsqueeze(3) for each in (x, added)]
        return self.convolved(pictures[0], weight, self.bias, 1, 0, pictures[1]).squeeze(3).transpose(1, 2)


class StackedConv(nn.Module):
    """K convolutions, weights (K, o, i, r, r) and biases (K, o): (K·b, i, h, w) → (K·b, o, h', w'). Or one, with
    weights (o, i, r, r) and (o,)."""

    def __init__(self, layer: nn.Conv2d, *, cuda: bool) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        if not simple(layer):
            raise CannotStack("a convolution has groups, a dilation or a named padding")
        self.stride, self.padding = layer.stride, layer.padding
        self.adds_bias = True  # False: another layer adds it
        square = layer.kernel_size in ((1, 1), (3, 3)) and len({*self.stride}) == len({*self.padding}) == 1
        self.convolved = _kernel() if cuda and square else None

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias if self.adds_bias else None
        if weight.ndim == 4 and self.convolved is None:
            return F.conv2d(x, weight, bias, self.stride, self.padding)
        if weight.ndim == 4:
            weight, bias = weight[None], None if bias is None else bias[None]
        if self.convolved is not None:
            return self._by_kernel(x, weight.permute(0, 1, 3, 4, 2), bias)
        each = x.unflatten(0, (weight.shape[0], -1))  # (K, b, i, h, w)
        biases = [None] * len(weight) if bias is None else bias
        return torch.cat([F.conv2d(*own, self.stride, self.padding) for own in zip(each, weight, biases, strict=True)])

    def _by_kernel(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        assert self.convolved is not None
        beside, options = parts_of(x), (self.stride[0], self.padding[0])
        if beside is not None and weight.shape[2] == 1:
            # the product of a concatenation is the sum of the parts' products
            first, second = beside
            size = first.shape[1]
            so_far = self.convolved(first, weight[..., :size], bias, *options)
            return self.convolved(second, weight[..., size:], None, *options, so_far)
        y = self.convolved(x, weight, bias, *options)
        return with_addition(y, lambda more: self.convolved(x, weight, bias, *options, more))  # ty: ignore[call-non-callable]


def _kernel() -> Callable[..., Tensor]:
    from diffcredit.diffusion.fast.convolution import convolved  # needs Triton

    return convolved


def simple(layer: nn.Conv2d) -> bool:
    """Return whether these layers support a convolution."""
    return layer.groups == 1 and layer.dilation == (1, 1) and not isinstance(layer.padding, str)
