"""The convolutions of K networks in one kernel; cuDNN computes the groups of a grouped convolution one after another.

Images (K·b, c, h, w) are ordered by model, channels last; weights are (K, out, r, r, in). With output pixels as rows
and channels as columns, a convolution is a matrix product whose first factor is gathered while it is multiplied; the
sum runs over the r² taps and the channels. The gradient of the images is the same product with the weights' channels
exchanged. The gradient of the weights sums over pixels, in pieces that are added in a fixed order. Names in this
package call a gradient a *slope*.

Images keep their four dimensions: a compiler that sees them reshaped would copy them into another order and back.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from diffcredit.diffusion.fast.kernels import PROCESSORS, ceil_div, next_power_of_2
from diffcredit.diffusion.fast.kernels.products import product
from diffcredit.diffusion.fast.kernels.weights import weight_lines, weight_sums, weight_windows

ROWS = 64  # pixels per step of the sums over pixels


def convolved(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int, added: Tensor | None = None
) -> Tensor:
    """Return the convolution of x (K·b, in, h, w) with weights (K, out, r, r, in), r = 1 or 3, plus biases (K, out),
    plus ``added``: (K·b, out, h', w')."""
    each = weight if _readable(weight) else weight.contiguous()
    images = x.contiguous(memory_format=torch.channels_last)
    added = None if added is None else added.contiguous(memory_format=torch.channels_last)
    return _convolve(images, each, bias, added, stride, padding)


def _readable(weight: Tensor) -> bool:
    """Return whether taps are equally spaced in memory, as the kernels require."""
    _, _, line, tap, channel = weight.stride()
    return channel == 1 and line == weight.shape[3] * tap


@torch.library.custom_op("diffcredit::convolve", mutates_args=())
def _convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, added: Tensor | None, stride: int, padding: int
) -> Tensor:
    y = _empty(x, weight, bias, added, stride, padding)
    _multiply(x, weight, bias, added, y, stride, padding, back=False)
    return y


@_convolve.register_fake
def _empty(x: Tensor, weight: Tensor, bias: Tensor | None, added: Tensor | None, stride: int, padding: int) -> Tensor:
    height, width = ((size + 2 * padding - weight.shape[2]) // stride + 1 for size in x.shape[2:])
    shape = x.shape[0], weight.shape[1], height, width
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


@torch.library.custom_op("diffcredit::convolve_back", mutates_args=())
def _convolve_back(
    slope: Tensor, weight: Tensor, like: Tensor, added: Tensor | None, stride: int, padding: int
) -> Tensor:
    x = torch.empty_like(like, memory_format=torch.channels_last)
    _multiply(slope, weight, None, added, x, stride, padding, back=True)
    return x


@_convolve_back.register_fake
def _(slope: Tensor, weight: Tensor, like: Tensor, added: Tensor | None, stride: int, padding: int) -> Tensor:
    return torch.empty_like(like, memory_format=torch.channels_last)


@torch.library.custom_op("diffcredit::convolution_weights", mutates_args=())
def _weight_slopes(
    x: Tensor, slope: Tensor, models: int, side: int, stride: int, padding: int, biased: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradients of weights (p, K, out, r, r, in) and biases (p, K, out), in p pieces to be added."""
    images, channels, height, width = x.shape
    _, columns, y_height, y_width = slope.shape
    rows = images // models * y_height * y_width
    sharing = _sharing(x, slope, models, side, stride, padding)
    sums, bias_sums = _weight_pieces(x, slope, models, side, stride, padding, biased)
    piece_rows = ceil_div(ceil_div(rows, sharing.pieces), ROWS) * ROWS
    options: dict[str, Any] = {
        "HEIGHT": height,
        "WIDTH": width,
        "CHANNELS": channels,
        "OUTPUTS": columns,
        "ROWS": ROWS,
        "OUT": sharing.out,
        "INTO": sharing.into,
        "PRECISION": _precision(),
        "BIASED": biased,
        "num_warps": 4,
        "num_stages": _stages(x, ROWS * 3 * (sharing.out + 2 * sharing.into)),
    }
    if sharing.kernel is weight_sums:
        options |= {"Y_HEIGHT": y_height, "Y_WIDTH": y_width, "SIDE": side, "STRIDE": stride, "PADDING": padding}
    else:
        options |= {"EVEN": rows % ROWS == 0}
    sharing.kernel[(sharing.tiles, sharing.pieces, models)](x, slope, sums, bias_sums, rows, piece_rows, **options)
    return sums, bias_sums


@_weight_slopes.register_fake
def _weight_pieces(
    x: Tensor, slope: Tensor, models: int, side: int, stride: int, padding: int, biased: bool
) -> tuple[Tensor, Tensor]:
    pieces = _sharing(x, slope, models, side, stride, padding).pieces
    shape = pieces, models, slope.shape[1], side, side, x.shape[1]
    return x.new_empty(shape, dtype=torch.float32), x.new_empty(shape[:3], dtype=torch.float32)


@dataclass(frozen=True)
class _Sharing:
    """The division of the sums over pixels: the kernel, its tile of channels, the number of tiles, and the number of
    pieces of the rows: enough to occupy the processors, and few to add."""

    kernel: Any
    out: int
    into: int
    tiles: int
    pieces: int


def _sharing(x: Tensor, slope: Tensor, models: int, side: int, stride: int, padding: int) -> _Sharing:
    columns, channels = slope.shape[1], x.shape[1]
    rows = slope.shape[0] // models * slope.shape[2] * slope.shape[3]
    out, into = (min(16 if _exact(x) else 64, max(16, next_power_of_2(size))) for size in (columns, channels))
    if side == 3 and stride == padding == 1:
        kernel, into, programs = weight_lines if out == 64 else weight_windows, min(32, into), 6
        tiles = ceil_div(columns, out) * ceil_div(channels, into)
    else:
        kernel, programs = weight_sums, 4
        tiles = side * ceil_div(columns, out) * ceil_div(channels, into)
    pieces = max(1, min(programs * PROCESSORS // (tiles * models), rows // 512))
    return _Sharing(kernel, out, into, tiles, pieces)


def _precision() -> str:
    """Return the precision of float32 products, following torch's setting."""
    return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"


def _exact(x: Tensor) -> bool:
    """Return whether products do without tensor cores; large tiles of these take minutes to compile."""
    return x.dtype != torch.bfloat16 and _precision() == "ieee"


def _stages(x: Tensor, numbers: int) -> int:
    """Return the number of pipeline stages of a kernel's loop, each of which loads ``numbers`` numbers."""
    if not x.is_cuda:
        return 3
    room = torch.cuda.get_device_properties(x.device).shared_memory_per_block_optin
    return max(1, min(3, room // (numbers * x.element_size())))


def _multiply(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    added: Tensor | None,
    y: Tensor,
    stride: int,
    padding: int,
    *,
    back: bool,
) -> None:
    images, channels, height, width = x.shape
    _, columns, y_height, y_width = y.shape
    models, side = weight.shape[0], weight.shape[2]
    rows = images // models * y_height * y_width
    tall, wide, terms = 128, 128, next((terms for terms in (64, 32, 16) if channels % terms == 0), 32)
    if _exact(x):
        tall, wide, terms = 32, 32, 16
    tile = min(wide, max(16, next_power_of_2(columns)))
    of_out, _, of_tap, _ = weight.stride()[1:]
    product[(ceil_div(rows, tall) * ceil_div(columns, tile), models)](
        x,
        weight,
        bias,
        added,
        y,
        rows,
        weight.stride(0),
        0 if bias is None else bias.stride(0),
        1 if back else of_out,
        of_out if back else 1,
        of_tap,
        HEIGHT=height,
        WIDTH=width,
        Y_HEIGHT=y_height,
        Y_WIDTH=y_width,
        CHANNELS=channels,
        OUTPUTS=columns,
        SIDE=side,
        STRIDE=stride,
        PADDING=padding,
        BACK=back,
        BIAS=bias is not None,
        ADDED=added is not None,
        ROWS=tall,
        COLUMNS=tile,
        TERMS=terms,
        PRECISION=_precision(),
        num_warps=8 if tile >= 64 else 4,
        num_stages=_stages(x, terms * (tall + tile)),
    )


def _remember(ctx, inputs, output) -> None:
    x, weight, bias, added, ctx.stride, ctx.padding = inputs
    ctx.biased, ctx.adds = bias is not None, added is not None
    ctx.save_for_backward(x, weight)


def _slopes(ctx, slope: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    slope = slope.contiguous(memory_format=torch.channels_last)
    back = _convolve_back(slope, weight, x, None, ctx.stride, ctx.padding) if ctx.needs_input_grad[0] else None
    added = slope if ctx.adds else None
    if not (ctx.needs_input_grad[1] or ctx.needs_input_grad[2]):
        return back, None, None, added, None, None
    shape = weight.shape[0], weight.shape[2], ctx.stride, ctx.padding
    weights, biases = _weight_slopes(x, slope, *shape, ctx.biased)
    weights = weights.sum(dim=0).to(weight.dtype)
    return back, weights, biases.sum(dim=0).to(weight.dtype) if ctx.biased else None, added, None, None


_convolve.register_autograd(_slopes, setup_context=_remember)
