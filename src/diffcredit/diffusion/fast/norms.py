"""Group normalisation of K networks' images in one kernel, with the shift before it and the SiLU after it."""

import math
from typing import Any

import torch
from torch import Tensor

from diffcredit.diffusion.fast.kernels import PROCESSORS, ceil_div, next_power_of_2
from diffcredit.diffusion.fast.kernels.norms import norm, norm_slopes

REGISTERS = 32_768  # numbers of a tile that a program holds; larger images are read twice


def normed(
    x: Tensor,
    shift: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    groups: int,
    eps: float,
    *,
    silu: bool,
    other: Tensor | None = None,
) -> Tensor:
    """Add ``shift`` (K·b, c) to K models' images x (K·b, c, …), channels last; normalise each image's groups of
    channels to mean 0 and variance 1; multiply by ``weight`` (K, c) and add ``bias`` (K, c); apply SiLU if ``silu``. If
    ``other`` is given, it has the images' last channels and x the first."""
    shift = None if shift is None else shift.contiguous()
    other = None if other is None else _channels_last(other)
    return _norm(_channels_last(x), other, shift, weight.contiguous(), bias.contiguous(), groups, eps, silu)[0]


def _channels_last(x: Tensor) -> Tensor:
    # keeps the dimensions of images, for the reason given in convolution.py
    if x.ndim == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


@torch.library.custom_op("diffcredit::norm", mutates_args=())
def _norm(
    x: Tensor,
    other: Tensor | None,
    shift: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    groups: int,
    eps: float,
    silu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    y, means, scales = _outline(x, other, shift, weight, bias, groups)
    channels, pixels = y.shape[1], math.prod(x.shape[2:])
    options, programs = _tiling(len(x), pixels, channels, groups, back=False)
    norm[(programs, len(x))](
        x,
        x if other is None else other,
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
        SPLIT=0 if other is None else x.shape[1],
        SHIFTED=shift is not None,
        SILU=silu,
        **options,
    )
    return y, means, scales


@_norm.register_fake
def _outline(
    x: Tensor, other: Tensor | None, shift: Tensor | None, weight: Tensor, bias: Tensor, groups: int, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    means, scales = (x.new_empty(x.shape[0], groups, dtype=torch.float32) for _ in range(2))
    if other is None:
        return torch.empty_like(x), means, scales
    shape = x.shape[0], x.shape[1] + other.shape[1], *x.shape[2:]
    y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    return y, means, scales


@torch.library.custom_op("diffcredit::norm_slopes", mutates_args=())
def _norm_slopes(
    slope: Tensor,
    x: Tensor,
    other: Tensor | None,
    shift: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    means: Tensor,
    scales: Tensor,
    silu: bool,
    added: Tensor | None,
    other_added: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, plus ``added``, and of ``other``, plus ``other_added`` (empty if there is none), and
    those of each image's weights, biases and shift (3, n, c)."""
    back, other_back, sums = _slopes_outline(slope, x, other)
    channels, pixels, groups = slope.shape[1], math.prod(x.shape[2:]), means.shape[1]
    options, programs = _tiling(len(x), pixels, channels, groups, back=True)
    norm_slopes[(programs, len(x))](
        slope,
        x,
        x if other is None else other,
        shift,
        weight,
        bias,
        means,
        scales,
        added,
        added if other is None else other_added,
        back,
        other_back,
        sums,
        pixels,
        channels,
        groups,
        len(x) // len(weight),
        SPLIT=0 if other is None else x.shape[1],
        SHIFTED=shift is not None,
        SILU=silu,
        ADDED=added is not None,
        **options,
    )
    return back, other_back, sums


@_norm_slopes.register_fake
def _slopes_outline(slope: Tensor, x: Tensor, other: Tensor | None, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    back, other_back = torch.empty_like(x), x.new_empty(0) if other is None else torch.empty_like(other)
    return back, other_back, x.new_empty(3, x.shape[0], slope.shape[1], dtype=torch.float32)


def _tiling(images: int, pixels: int, channels: int, groups: int, *, back: bool) -> tuple[dict[str, int | bool], int]:
    """Return a kernel's tiles and warps, and the number of programs per image, tuned on an H200. Adjacent channels fill
    one or two memory sectors. Images that do not fit into registers are read a second time, from the caches, which
    costs nothing if there are many."""
    each = channels // groups
    narrow, wide = (_groups_of(span, each, groups) for span in (16, 32))
    few = images * ceil_div(groups, wide) < 2 * PROCESSORS
    fits = next_power_of_2(pixels) * next_power_of_2(narrow * each) <= REGISTERS
    whole = fits and (few or (not back and pixels > 256 and narrow * each == 16))
    some = narrow if whole else wide
    lanes = next_power_of_2(some * each)
    if whole:
        rows = next_power_of_2(pixels)
        warps = min(16, max(2, rows * lanes // 2048))
    else:
        rows = min(
            256, max(1, next_power_of_2(pixels) // 2 if back else next_power_of_2(pixels)), max(1, REGISTERS // lanes)
        )
        warps = min(4, max(1, rows * lanes // 1024))
    options: dict[str, int | bool] = {
        "EACH": each,
        "GROUPS": some,
        "CHANNELS": lanes,
        "PIXELS": rows,
        "WHOLE": rows >= pixels,
        "num_warps": warps,
    }
    return options, ceil_div(groups, some)


def _groups_of(span: int, each: int, groups: int) -> int:
    """Return the number of groups of ``each`` channels within ``span`` channels; at least one."""
    some = 1
    while some * 2 <= groups and some * 2 * each <= span:
        some *= 2
    return some


def _remember(ctx, inputs, output) -> None:
    x, other, shift, weight, bias, _, _, ctx.silu = inputs
    _, means, scales = output
    ctx.mark_non_differentiable(means, scales)
    ctx.save_for_backward(x, other, shift, weight, bias, means, scales)


def _back(ctx, slope: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, other, shift, weight, bias, means, scales = ctx.saved_tensors
    back, other_back, sums = _norm_slopes(
        _channels_last(slope), x, other, shift, weight, bias, means, scales, ctx.silu, None, None
    )
    weights, biases = sums[:2].unflatten(1, (weight.shape[0], -1)).sum(dim=2).to(weight.dtype)
    shifts = None if shift is None else sums[2].to(shift.dtype)
    return back, None if other is None else other_back, shifts, weights, biases, None, None, None


_norm.register_autograd(_back, setup_context=_remember)
