"""Group normalisation of many networks' images in one kernel, with the shift before it and the SiLU after it."""

import math

import torch
from torch import Tensor

from diffcredit.diffusion.fast.kernels.norms import norm, norm_slopes
from diffcredit.diffusion.fast.tiles import over, power_of_2

REGISTERS = 32_768  # numbers of a tile that a program holds; larger images are read a second time


def normed(
    x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, groups: int, eps: float, *, silu: bool
) -> Tensor:
    """Of K models' images x (K·b, c, …) channels last, to which ``shift`` (K·b, c) is added first: each image's groups
    of channels with mean 0 and variance 1, times ``weight`` (K, c) plus ``bias`` (K, c); and SiLU of that."""
    shift = None if shift is None else shift.contiguous()
    return _norm(_channels_last(x), shift, weight.contiguous(), bias.contiguous(), groups, eps, silu)[0]


def _channels_last(x: Tensor) -> Tensor:
    # keeps the dimensions of images, for the reason that convolution.py gives
    if x.ndim == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


@torch.library.custom_op("diffcredit::norm", mutates_args=())
def _norm(
    x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, groups: int, eps: float, silu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    y, means, scales = _outline(x, shift, weight, bias, groups, eps, silu)
    channels, pixels = x.shape[1], math.prod(x.shape[2:])
    options, programs = _tiling(pixels, channels, groups)
    norm[(programs, len(x))](
        x,
        shift,
        weight,
        bias,
        y,
        means,
        scales,
        pixels,
        channels,
        groups,
        len(x) // len(weight),
        eps,
        SHIFTED=shift is not None,
        SILU=silu,
        **options,
    )
    return y, means, scales


@_norm.register_fake
def _outline(
    x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, groups: int, eps: float, silu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    means, scales = (x.new_empty(x.shape[0], groups, dtype=torch.float32) for _ in range(2))
    return torch.empty_like(x), means, scales


@torch.library.custom_op("diffcredit::norm_slopes", mutates_args=())
def _norm_slopes(
    slope: Tensor,
    x: Tensor,
    shift: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    means: Tensor,
    scales: Tensor,
    silu: bool,
) -> tuple[Tensor, Tensor]:
    """Of x, and of each image's weights, biases and shift (3, n, c)."""
    back, sums = _slopes_outline(slope, x, shift, weight, bias, means, scales, silu)
    channels, pixels, groups = x.shape[1], math.prod(x.shape[2:]), means.shape[1]
    options, programs = _tiling(pixels, channels, groups)
    norm_slopes[(programs, len(x))](
        slope,
        x,
        shift,
        weight,
        bias,
        means,
        scales,
        back,
        sums,
        pixels,
        channels,
        groups,
        len(x) // len(weight),
        SHIFTED=shift is not None,
        SILU=silu,
        **options,
    )
    return back, sums


@_norm_slopes.register_fake
def _slopes_outline(
    slope: Tensor,
    x: Tensor,
    shift: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    means: Tensor,
    scales: Tensor,
    silu: bool,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(3, x.shape[0], x.shape[1], dtype=torch.float32)


def _tiling(pixels: int, channels: int, groups: int) -> tuple[dict[str, int | bool], int]:
    """How an image is shared out: a kernel's tiles and warps, and how many programs an image has. Channels side by side
    fill a sector of memory, or two where pixels are few."""
    each = channels // groups
    span = min(32, max(16, power_of_2(8192 // pixels)))
    some = 1
    while some * 2 <= groups and some * 2 * each <= span:
        some *= 2
    lanes = power_of_2(some * each)
    whole = power_of_2(pixels) * lanes <= REGISTERS
    rows = power_of_2(pixels) if whole else max(1, 4096 // lanes)
    options: dict[str, int | bool] = {
        "EACH": each,
        "GROUPS": some,
        "CHANNELS": lanes,
        "PIXELS": rows,
        "WHOLE": whole,
        "num_warps": min(16, max(2, rows * lanes // 2048)),
    }
    return options, over(groups, some)


def _remember(ctx, inputs, output) -> None:
    x, shift, weight, bias, _, _, ctx.silu = inputs
    _, means, scales = output
    ctx.mark_non_differentiable(means, scales)
    ctx.save_for_backward(x, shift, weight, bias, means, scales)


def _back(ctx, slope: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, shift, weight, bias, means, scales = ctx.saved_tensors
    back, sums = _norm_slopes(_channels_last(slope), x, shift, weight, bias, means, scales, ctx.silu)
    weights, biases = sums[:2].unflatten(1, (weight.shape[0], -1)).sum(dim=2).to(weight.dtype)
    shifts = None if shift is None else sums[2].to(shift.dtype)
    return back, shifts, weights, biases, None, None, None


_norm.register_autograd(_back, setup_context=_remember)
