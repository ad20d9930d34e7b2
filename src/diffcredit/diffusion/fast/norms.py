"""Group normalisation of many networks' images in one kernel, with the shift before it and the SiLU after it."""

import torch
from torch import Tensor

from diffcredit.diffusion.fast.kernels.norms import norm, norm_slopes

REGISTERS = 32_768  # numbers of a tile that a program holds; larger images are read a second time


def normed(
    x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, groups: int, eps: float, *, silu: bool
) -> Tensor:
    """Of K models' images x (K·b, pixels, c), to which ``shift`` (K·b, c) is added first: each image's groups of channels
    with mean 0 and variance 1, times ``weight`` (K, c) plus ``bias`` (K, c); and SiLU of that."""
    shift = None if shift is None else shift.contiguous()
    return _norm(x.contiguous(), shift, weight.contiguous(), bias.contiguous(), groups, eps, silu)[0]


@torch.library.custom_op("diffcredit::norm", mutates_args=())
def _norm(
    x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, groups: int, eps: float, silu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    y, means, scales = _outline(x, shift, weight, bias, groups, eps, silu)
    pixels, channels = x.shape[1:]
    options, programs, numbers = _tiling(pixels, channels, groups)
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
        num_warps=min(16, max(2, numbers // 2048)),
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
    (pixels, channels), groups = x.shape[1:], means.shape[1]
    options, programs, numbers = _tiling(pixels, channels, groups)
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
        num_warps=min(16, max(4, numbers // 1024)),
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
    return torch.empty_like(x), x.new_empty(3, x.shape[0], x.shape[2], dtype=torch.float32)


def _tiling(pixels: int, channels: int, groups: int) -> tuple[dict[str, int | bool], int, int]:
    """How an image is shared out: the kernel's tiles, how many programs an image has, and the numbers of a tile. As many
    channels side by side as make whole sectors of memory, and more where pixels are few."""
    each = channels // groups
    span = min(64, max(16, _power_of_2(8192 // pixels)))
    some = 1
    while some * 2 <= groups and some * 2 * each <= span:
        some *= 2
    if some * each % 8 and some * 2 <= groups and some * 2 * each <= 2 * span:
        some *= 2  # so that eight numbers are loaded at once
    lanes = _power_of_2(some * each)
    whole = _power_of_2(pixels) * lanes <= REGISTERS
    rows = _power_of_2(pixels) if whole else max(1, 4096 // lanes)
    options: dict[str, int | bool] = {
        "EACH": each,
        "GROUPS": some,
        "CHANNELS": lanes,
        "PIXELS": rows,
        "WHOLE": whole,
    }
    return options, -(-groups // some), rows * lanes


def _remember(ctx, inputs, output) -> None:
    x, shift, weight, bias, _, _, ctx.silu = inputs
    _, means, scales = output
    ctx.mark_non_differentiable(means, scales)
    ctx.save_for_backward(x, shift, weight, bias, means, scales)


def _back(ctx, slope: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, shift, weight, bias, means, scales = ctx.saved_tensors
    back, sums = _norm_slopes(slope.contiguous(), x, shift, weight, bias, means, scales, ctx.silu)
    weights, biases = sums[:2].unflatten(1, (weight.shape[0], -1)).sum(dim=2).to(weight.dtype)
    shifts = None if shift is None else sums[2].to(shift.dtype)
    return back, shifts, weights, biases, None, None, None


_norm.register_autograd(_back, setup_context=_remember)


def _power_of_2(least: int) -> int:
    """The smallest that is not less."""
    return 1 << (max(1, least) - 1).bit_length()
