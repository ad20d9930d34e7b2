"""The convolutions of many networks in one kernel, which cuDNN's grouped ones are not: it takes group after group.

Images lie model after model and channels last, (K, b, h, w, c); weights are (K, out, r, r, in). With output pixels as
rows and channels as columns a convolution is a product of matrices whose first factor is gathered while it is
multiplied: the sum runs over the r² taps and the channels. Its gradient for the images is the same product with the
weights' channels exchanged; that for the weights sums over pixels, in pieces that are added up in a fixed order.
"""

import torch
from torch import Tensor

from diffcredit.diffusion.fast.kernels import product, weight_sums

PROCESSORS = 132  # about as many as a large GPU has; sums are cut into pieces for several times that


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int) -> Tensor:
    """(K, b, h, w, in) and weights (K, out, r, r, in), r = 1 or 3, with biases (K, out) → (K, b, h', w', out)."""
    return _convolve(x.contiguous(), weight, bias, stride, padding)


@torch.library.custom_op("diffcredit::convolve", mutates_args=())
def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int) -> Tensor:
    y = _empty(x, weight, bias, stride, padding)
    _multiply(x, weight, bias, y, stride, padding, back=False)
    return y


@_convolve.register_fake
def _empty(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int) -> Tensor:
    side = weight.shape[2]
    height, width = ((size + 2 * padding - side) // stride + 1 for size in x.shape[2:4])
    return x.new_empty(x.shape[0], x.shape[1], height, width, weight.shape[1])


@torch.library.custom_op("diffcredit::convolve_back", mutates_args=())
def _convolve_back(slope: Tensor, weight: Tensor, like: Tensor, stride: int, padding: int) -> Tensor:
    x = torch.empty_like(like)
    _multiply(slope, weight, None, x, stride, padding, back=True)
    return x


@_convolve_back.register_fake
def _(slope: Tensor, weight: Tensor, like: Tensor, stride: int, padding: int) -> Tensor:
    return torch.empty_like(like)


@torch.library.custom_op("diffcredit::convolution_weights", mutates_args=())
def _weight_slopes(x: Tensor, slope: Tensor, side: int, stride: int, padding: int) -> tuple[Tensor, Tensor]:
    """Of weights (p, K, out, r, r, in) and biases (p, K, out), in pieces to be added up."""
    models, images, height, width, channels = x.shape
    y_height, y_width, columns = slope.shape[2:]
    rows = images * y_height * y_width
    out, into = (min(64, max(16, _power_of_2(size))) for size in (columns, channels))
    tiles = side * _over(columns, out) * _over(channels, into)
    pieces = _pieces(x, slope, side)
    sums = x.new_empty(pieces, models, columns, side, side, channels, dtype=torch.float32)
    bias_sums = x.new_empty(pieces, models, columns, dtype=torch.float32)
    piece_rows = _over(_over(rows, pieces), 64) * 64
    weight_sums[(tiles, pieces, models)](
        x,
        slope,
        sums,
        bias_sums,
        rows,
        height,
        width,
        y_height,
        y_width,
        channels,
        columns,
        x.stride(0),
        slope.stride(0),
        piece_rows,
        padding,
        SIDE=side,
        STRIDE=stride,
        ROWS=64,
        OUT=out,
        INTO=into,
        num_warps=4,
        num_stages=3,
    )
    return sums, bias_sums


@_weight_slopes.register_fake
def _(x: Tensor, slope: Tensor, side: int, stride: int, padding: int) -> tuple[Tensor, Tensor]:
    shape = _pieces(x, slope, side), x.shape[0], slope.shape[-1], side, side, x.shape[-1]
    return x.new_empty(shape, dtype=torch.float32), x.new_empty(shape[:3], dtype=torch.float32)


def _pieces(x: Tensor, slope: Tensor, side: int) -> int:
    """Into how many the sum over pixels is cut."""
    columns, channels = slope.shape[-1], x.shape[-1]
    rows = slope.shape[1] * slope.shape[2] * slope.shape[3]
    programs = side * -(-columns // 64) * -(-channels // 64) * x.shape[0]
    return max(1, min(-(-4 * PROCESSORS // programs), rows // 512))


def _multiply(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    y: Tensor,
    stride: int,
    padding: int,
    *,
    back: bool,
) -> None:
    models, images, height, width, channels = x.shape
    _, _, y_height, y_width, columns = y.shape
    side = weight.shape[2]
    rows = images * y_height * y_width
    terms = 64 if channels % 64 == 0 else 32
    tile = min(128, max(16, _power_of_2(columns)))
    of_out, of_line, of_tap, of_into = weight.stride()[1:]
    assert of_line == side * of_tap
    assert of_into == 1
    product[(_over(rows, 128) * _over(columns, tile), models)](
        x,
        weight,
        bias,
        y,
        rows,
        height,
        width,
        y_height,
        y_width,
        channels,
        columns,
        x.stride(0),
        weight.stride(0),
        0 if bias is None else bias.stride(0),
        y.stride(0),
        1 if back else of_out,
        of_out if back else 1,
        of_tap,
        padding,
        SIDE=side,
        STRIDE=stride,
        BACK=back,
        BIAS=bias is not None,
        WHOLE=channels % terms == 0,
        ROWS=128,
        COLUMNS=tile,
        TERMS=terms,
        num_warps=8 if tile == 128 else 4,
        num_stages=3,
    )


def _remember(ctx, inputs, output) -> None:
    x, weight, bias, ctx.stride, ctx.padding = inputs
    ctx.biased = bias is not None
    ctx.save_for_backward(x, weight)


def _slopes(ctx, slope: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    slope = slope.contiguous()
    back = _convolve_back(slope, weight, x, ctx.stride, ctx.padding) if ctx.needs_input_grad[0] else None
    pieces = _weight_slopes(x, slope, weight.shape[2], ctx.stride, ctx.padding)
    weights, biases = (each.sum(dim=0).to(weight.dtype) for each in pieces)
    return back, weights, biases if ctx.biased else None, None, None


_convolve.register_autograd(_slopes, setup_context=_remember)


def _over(total: int, each: int) -> int:
    """⌈total / each⌉."""
    return -(-total // each)


def _power_of_2(least: int) -> int:
    """The smallest that is not less."""
    return 1 << (least - 1).bit_length()
