"""K networks of one architecture as one, with their images one model after another in one batch.

A tensor (b, …) of one network becomes (K·b, …). Layers with trained weights apply each model's own weights, which have
a leading dimension K, to its images. All other layers, frozen ones included, work on each image separately and stay as
they are. So diffusers' own code runs the fleet, and pruned networks and adapters work too.

What is trained can be convolutions, linear layers, embeddings and norms, and the tables of numbers that transformers
add to projections of the time; :class:`CannotStack` names anything else.

Group normalisation is fused with the operations beside it in diffusers' residual blocks: biases of the convolution and
a shift by the time embedding come before, SiLU comes after. Separately these read and write the images several times;
fused, once. The blocks' own code still runs; it finds them done elsewhere.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from diffusers.models.resnet import ResnetBlock2D
from diffusers.models.upsampling import Upsample2D
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from diffcredit.diffusion.dropout import counted_dropouts
from diffcredit.diffusion.fast.fusion import parts_of, with_addition
from diffcredit.diffusion.fast.stacked_layers import NORMS, TABLE, StackedEmbedding, StackedNorm, stack_table
from diffcredit.errors import DiffcreditError

LEAST = 16  # channels from which on the kernels' tiles fit
POSITIONS = ("_compute_video_freqs", "_get_device_freqs")  # methods of Qwen-Image's positions
JOINED = "joined"  # a value of ``time_embedding_norm`` at which a block does nothing itself


class CannotStack(DiffcreditError):
    """A network that the fast path cannot run; the message says why."""


def stacked(network: nn.Module, count: int, *, cuda: bool) -> nn.Module:
    """Return a copy of ``network`` for ``count`` models. Each call is given their trained weights (K, …)
    (:func:`torch.func.functional_call`); those of a single model without the leading dimension. The copy has no
    weights of its own: a frozen base may fill most of the memory."""
    # in eval mode also for training: dropout is active when it has keys, and in train mode diffusers copies tensors
    shared = {id(each): each for each in (*network.parameters(), *network.buffers())}
    fleet = copy.deepcopy(network, shared).eval()
    for name, dropout in counted_dropouts(fleet).items():
        fleet.set_submodule(name, dropout)
    for name, module in fleet.named_modules():
        if hasattr(module, POSITIONS[0]):
            _compute_positions_anew(module, next(network.parameters()).device)
        if isinstance(module, _DropoutNd) and module.p > 0:
            raise CannotStack(f"{name} is a {type(module).__name__} of {module.p:g}")
    for name, module in list(fleet.named_modules()):
        if type(module) is nn.GroupNorm and module.affine:
            fleet.set_submodule(name, Norm(module, cuda=cuda))
        elif _doubles(module):
            fleet.set_submodule(name, Doubled(module.conv))
        elif type(module) is nn.Embedding and module.weight.requires_grad:
            if not StackedEmbedding.accepts(module):
                raise CannotStack(f"{name} is an Embedding with padding_idx, max_norm or scale_grad_by_freq")
            fleet.set_submodule(name, StackedEmbedding(module))
        elif count == 1 and cuda and type(module) is nn.Conv2d and _is_odd(module):
            fleet.set_submodule(name, StackedConv(module, cuda=cuda))
    if count > 1:
        _stack_trained_layers(fleet, cuda=cuda)
    fuse_norms(fleet)
    return fleet


def _compute_positions_anew(module: Any, device: torch.device) -> None:
    """Make the positions of Qwen-Image, in place, compute what they cache, from tables on ``device``: a trace would put
    tensors without values into the cache."""
    module.pos_freqs, module.neg_freqs = module.pos_freqs.to(device), module.neg_freqs.to(device)
    for name in POSITIONS:
        setattr(module, name, partial(getattr(type(module), name).__wrapped__, module))


def _stack_trained_layers(fleet: nn.Module, *, cuda: bool) -> None:
    """Replace trained layers by those of many models, in place."""
    for name, module in list(fleet.named_modules()):
        weights = dict(module.named_parameters(recurse=False))
        own = [key for key, weight in weights.items() if weight.requires_grad]
        if not own or isinstance(module, Norm | StackedEmbedding):
            continue
        if len(own) < len(weights):
            raise CannotStack(f"{name} is a {type(module).__name__} that is frozen in part")
        if type(module) is nn.Conv2d:
            if isinstance(module.padding, str) or module.padding_mode != "zeros":
                raise CannotStack(f"{name} is a Conv2d with padding {module.padding!r}, {module.padding_mode}")
            fleet.set_submodule(name, StackedConv(module, cuda=cuda))
        elif type(module) is nn.Linear:
            fleet.set_submodule(name, StackedLinear(module, cuda=cuda))
        elif type(module) in NORMS:
            fleet.set_submodule(name, StackedNorm(module))
        elif own == [TABLE]:
            stack_table(module)
        else:
            raise CannotStack(f"{name or 'the network'} is a {type(module).__name__} with {', '.join(own)}")


def _is_odd(layer: nn.Conv2d) -> bool:
    """Return whether it is a first or last layer, with too few channels for cuDNN's fast kernels."""
    threefold = layer.kernel_size == (3, 3) and layer.padding == (1, 1)
    return threefold and simple(layer) and min(layer.in_channels, layer.out_channels) < 8


def _doubles(module: nn.Module) -> bool:
    return (
        type(module) is Upsample2D
        and module.use_conv
        and not module.use_conv_transpose
        and module.interpolate
        and module.norm is None
        and isinstance(getattr(module, "conv", None), nn.Conv2d)
    )


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
        self.stride, self.padding = layer.stride, layer.padding
        self.options = layer.stride, layer.padding, layer.dilation, layer.groups
        self.adds_bias = True  # False: another layer adds it
        square = layer.kernel_size in ((1, 1), (3, 3)) and len({*self.stride}) == len({*layer.padding}) == 1
        self.convolved = _kernel() if cuda and square and simple(layer) else None
        self.cuts = simple(layer) and layer.kernel_size == layer.stride and set(layer.padding) == {0}

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias if self.adds_bias else None
        if weight.ndim == 4 and self.convolved is None:
            return F.conv2d(x, weight, bias, *self.options)
        if weight.ndim == 4:
            weight, bias = weight[None], None if bias is None else bias[None]
        if self.convolved is not None:
            return self._by_kernel(x, weight.permute(0, 1, 3, 4, 2), bias)
        if self.cuts:
            return self._by_patches(x, weight.permute(0, 1, 3, 4, 2), bias)
        each = x.unflatten(0, (weight.shape[0], -1))  # (K, b, i, h, w)
        biases = [None] * len(weight) if bias is None else bias
        return torch.cat([F.conv2d(*own, *self.options) for own in zip(each, weight, biases, strict=True)])

    def _by_patches(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute it as matrix products of patches that do not overlap, as transformers cut images, with weights
        (K, o, r, r, i)."""
        (high, wide), models = self.stride, len(weight)
        m, into, *sides = x.shape
        height, width = sides[0] // high, sides[1] // wide
        cut = x[:, :, : height * high, : width * wide].reshape(m, into, height, high, width, wide)
        rows = cut.permute(0, 2, 4, 3, 5, 1).reshape(models, -1, high * wide * into)
        y = torch.bmm(rows, weight.flatten(2).transpose(1, 2))
        if bias is not None:
            y = y + bias[:, None]
        return y.reshape(m, height, width, -1).permute(0, 3, 1, 2)

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
