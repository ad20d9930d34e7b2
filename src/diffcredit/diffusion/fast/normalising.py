"""Group normalisation for the fast path, fused with the operations beside it in diffusers' residual blocks.

In a block the channels are shifted by the first convolution's biases and by the time embedding before the second
normalisation, and SiLU follows both norms. Separately these read and write the images several times; fused, once. The
blocks' own code still runs; it finds biases, shift and SiLU done elsewhere.
"""

from collections.abc import Callable
from typing import Any

import torch
from diffusers.models.resnet import ResnetBlock2D
from torch import Tensor, nn
from torch.nn import functional as F

from diffcredit.diffusion.fast.fusion import parts_of
from diffcredit.diffusion.fast.layers import StackedConv, simple

JOINED = "joined"  # a value of ``time_embedding_norm`` at which a block does nothing itself


class Norm(nn.Module):
    """GroupNorm with weights (c,) or, of K models, (K, c), on images (K·b, c, …). Images and gradients stay channels
    last. ``shift`` (K·b, c), if another layer has set one, is added first; with ``silu`` SiLU follows."""

    def __init__(self, norm: nn.GroupNorm, *, cuda: bool) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        self.groups, self.eps = norm.num_groups, norm.eps
        self.silu = False
        self.shift: Tensor | None = None
        self.normed: Callable[..., Tensor] | None = None
        if cuda:
            from diffcredit.diffusion.fast.norms import normed  # needs Triton

            self.normed = normed

    def forward(self, x: Tensor) -> Tensor:
        shift, self.shift = self.shift, None
        if self.normed is not None:
            weight, bias = (each.reshape(-1, x.shape[1]) for each in (self.weight, self.bias))
            first, other = parts_of(x) or (x, None)
            return self.normed(first, shift, weight, bias, self.groups, self.eps, silu=self.silu, other=other)
        if shift is not None:
            x = (x + shift[(..., *[None] * (x.ndim - 2))]).to(x.dtype)
        y = self._plain(x)
        return F.silu(y) if self.silu else y

    def _plain(self, x: Tensor) -> Tensor:
        """Sum over pixels first, then over a group's channels."""
        kind = torch.promote_types(x.dtype, torch.float32)
        wide = x.to(kind)
        pixels = tuple(range(2, x.ndim))
        means, squares = (
            sums.unflatten(1, (self.groups, -1)).mean(dim=2, keepdim=True)
            for sums in (wide.mean(dim=pixels), wide.square().mean(dim=pixels))
        )  # (n, groups, 1)
        scale = (squares - means.square()).clamp(min=0).add(self.eps).rsqrt()
        # (K or 1, 1, groups, channels of a group) beside (K, b, groups, 1)
        weight, bias = (
            each.to(kind).reshape(-1, 1, self.groups, x.shape[1] // self.groups) for each in (self.weight, self.bias)
        )
        means, scale = (each.unflatten(0, (weight.shape[0], -1)) for each in (means, scale))
        factor = scale * weight
        shift = bias - means * factor
        factor, shift = (each.flatten(0, 1).flatten(1)[(..., *[None] * len(pixels))] for each in (factor, shift))
        return (wide * factor + shift).to(x.dtype)


class Done(nn.Module):
    """A block's SiLU, left out for images, to which the norm before applies it; a time embedding (K·b, c) needs it."""

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x) if x.ndim == 2 else x


def fuse_norms(network: nn.Module) -> None:
    """Fuse the norms of ``network``, in place, with the operations beside them in diffusers' usual blocks."""
    for module in network.modules():
        if isinstance(module, ResnetBlock2D):
            _fuse_block(module)
    norm, activation = (getattr(network, name, None) for name in ("conv_norm_out", "conv_act"))
    if isinstance(norm, Norm) and type(activation) is nn.SiLU:
        norm.silu = True
        network.conv_act = nn.Identity()


def _fuse_block(block: ResnetBlock2D) -> None:
    first, second = block.norm1, block.norm2
    usual = block.time_embedding_norm == "default" and type(block.nonlinearity) is nn.SiLU
    if not (isinstance(first, Norm) and isinstance(second, Norm) and usual):
        return
    first.silu = second.silu = True
    block.nonlinearity = Done()
    if block.time_emb_proj is None:
        return
    block.time_embedding_norm = JOINED
    if type(block.conv1) is nn.Conv2d and simple(block.conv1):
        block.set_submodule("conv1", StackedConv(block.conv1, cuda=False))
    convolution = block.conv1 if isinstance(block.conv1, StackedConv) else None
    if convolution is not None:
        convolution.adds_bias = False
    block.time_emb_proj.register_forward_hook(_shift_hook(second, convolution))


def _shift_hook(norm: Norm, convolution: StackedConv | None) -> Callable[..., None]:
    """Return the hook of a block's projection of the time embedding: it passes the result, plus the biases of the
    ``convolution`` before, to the block's ``norm``."""

    def leave(module: nn.Module, args: Any, shift: Tensor) -> None:
        if convolution is not None and convolution.bias is not None:
            wide = shift.to(torch.promote_types(shift.dtype, torch.float32))
            biases = convolution.bias.to(wide.dtype).reshape(-1, 1, shift.shape[-1])  # (K or 1, 1, c)
            shift = (wide.unflatten(0, (len(biases), -1)) + biases).flatten(0, 1)
        norm.shift = shift

    return leave
