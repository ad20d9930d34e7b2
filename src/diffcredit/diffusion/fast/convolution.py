"""The convolutions of many networks in one kernel, which cuDNN's grouped ones are not: it takes group after group.

Images lie model after model and channels last, (K, b, h, w, c); weights are (K, out, r, r, in). With output pixels as
rows and channels as columns a convolution is a product of matrices whose first factor is gathered while it is
multiplied: the sum runs over the r² taps and the channels. Its gradient for the images is the same product with the
weights' channels exchanged; that for the weights sums over pixels, in pieces that are added up in a fixed order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PROCESSORS = 132  # about as many as a large GPU has; sums are cut into pieces for several times that


@triton.jit
def _product(
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
    x_model,
    weight_model,
    bias_model,
    y_model,
    by_column,
    by_channel,
    by_tap,
    padding,
    SIDE: tl.constexpr,
    STRIDE: tl.constexpr,
    BACK: tl.constexpr,
    BIAS: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TERMS: tl.constexpr,
):
    """One tile of y (rows, columns) of one model. ``BACK``: from the gradient of the output to that of the input.
    ``WHOLE``: the channels are a multiple of ``TERMS``, so that each step of the sum is within one tap."""
    model = tl.program_id(1).to(tl.int64)
    tiles = tl.cdiv(columns, COLUMNS)
    row = (tl.program_id(0) // tiles) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    image = row // (y_height * y_width)
    top = (row // y_width) % y_height
    left = row % y_width
    terms = tl.arange(0, TERMS)
    x += model * x_model
    weight += model * weight_model
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    blocks = tl.cdiv(channels, TERMS)
    steps = SIDE * SIDE * blocks if WHOLE else tl.cdiv(SIDE * SIDE * channels, TERMS)
    for step in range(steps):
        if WHOLE:
            tap = step // blocks
            channel = (step % blocks) * TERMS + terms
            if BACK:
                above = top + padding - tap // SIDE
                beside = left + padding - tap % SIDE
                fits = (above % STRIDE == 0) & (beside % STRIDE == 0) & (above >= 0) & (beside >= 0)
                above, beside = above // STRIDE, beside // STRIDE
            else:
                above = top * STRIDE - padding + tap // SIDE
                beside = left * STRIDE - padding + tap % SIDE
                fits = (above >= 0) & (beside >= 0)
            fits = fits & (above < height) & (beside < width) & (row < rows)
            place = ((image * height + above) * width + beside) * channels
            # kept near, since the next tap sees nearly the same
            at = x + place[:, None] + channel[None, :]
            seen = tl.load(at, mask=fits[:, None], other=0.0, cache_modifier=".ca")
            taps = tap + tl.zeros((TERMS,), dtype=tl.int32)
        else:
            term = step * TERMS + terms
            taps = term // channels
            channel = term % channels
            if BACK:
                above = top[:, None] + padding - (taps // SIDE)[None, :]
                beside = left[:, None] + padding - (taps % SIDE)[None, :]
                fits = (above % STRIDE == 0) & (beside % STRIDE == 0) & (above >= 0) & (beside >= 0)
                above, beside = above // STRIDE, beside // STRIDE
            else:
                above = top[:, None] * STRIDE - padding + (taps // SIDE)[None, :]
                beside = left[:, None] * STRIDE - padding + (taps % SIDE)[None, :]
                fits = (above >= 0) & (beside >= 0)
            fits = fits & (above < height) & (beside < width) & (row < rows)[:, None] & (taps < SIDE * SIDE)[None, :]
            place = ((image[:, None] * height + above) * width + beside) * channels + channel[None, :]
            seen = tl.load(x + place, mask=fits, other=0.0)
        known = (taps < SIDE * SIDE) & (channel < channels)
        of = taps * by_tap + channel * by_channel
        if BACK:
            factor = tl.load(
                weight + of[:, None] + column[None, :] * by_column,
                mask=known[:, None] & (column < columns)[None, :],
                other=0.0,
            )
        else:
            factor = tl.trans(
                tl.load(
                    weight + column[:, None] * by_column + of[None, :],
                    mask=(column < columns)[:, None] & known[None, :],
                    other=0.0,
                )
            )
        total = tl.dot(seen, factor, total)
    if BIAS:
        added = tl.load(bias + model * bias_model + column, mask=column < columns, other=0.0)
        total += added[None, :].to(tl.float32)
    tl.store(
        y + model * y_model + row[:, None].to(tl.int64) * columns + column[None, :],
        total.to(y.dtype.element_ty),
        mask=(row < rows)[:, None] & (column < columns)[None, :],
    )


@triton.jit
def _weight_sums(
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
    x_model,
    slope_model,
    piece_rows,
    padding,
    SIDE: tl.constexpr,
    STRIDE: tl.constexpr,
    ROWS: tl.constexpr,
    OUT: tl.constexpr,
    INTO: tl.constexpr,
):
    """Of one model and one piece of the rows: the products (out, in) of the output's gradient with the images, for the
    1 or 3 taps of one line of the kernel, which share what is loaded of the gradient; and the gradient's own sums."""
    models = tl.num_programs(2)
    model, piece = tl.program_id(2).to(tl.int64), tl.program_id(1)
    into_tiles = tl.cdiv(channels, INTO)
    out_tiles = tl.cdiv(columns, OUT)
    line = tl.program_id(0) // (into_tiles * out_tiles)
    tile = tl.program_id(0) % (into_tiles * out_tiles)
    column = (tile // into_tiles) * OUT + tl.arange(0, OUT)
    channel = (tile % into_tiles) * INTO + tl.arange(0, INTO)
    x += model * x_model
    slope += model * slope_model
    first = tl.zeros((OUT, INTO), dtype=tl.float32)
    second = tl.zeros((OUT, INTO), dtype=tl.float32)
    third = tl.zeros((OUT, INTO), dtype=tl.float32)
    alone = tl.zeros((OUT,), dtype=tl.float32)
    for start in range(piece * piece_rows, tl.minimum(rows, (piece + 1) * piece_rows), ROWS):
        row = start + tl.arange(0, ROWS)
        image = row // (y_height * y_width)
        above = ((row // y_width) % y_height) * STRIDE - padding + line
        beside = (row % y_width) * STRIDE - padding
        within = row < rows
        up = tl.load(
            slope + row[:, None] * columns + column[None, :],
            mask=within[:, None] & (column < columns)[None, :],
            other=0.0,
        )
        alone += tl.sum(up.to(tl.float32), axis=0)
        up = tl.trans(up)
        fits = within & (above >= 0) & (above < height)
        place = ((image * height + above) * width + beside) * channels
        known = (channel < channels)[None, :]
        at = x + place[:, None] + channel[None, :]
        # kept near, since the next tap sees nearly the same
        there = (fits & (beside >= 0) & (beside < width))[:, None] & known
        seen = tl.load(at, mask=there, other=0.0, cache_modifier=".ca")
        first = tl.dot(up, seen, first)
        if SIDE == 3:
            beside += 1
            there = (fits & (beside >= 0) & (beside < width))[:, None] & known
            seen = tl.load(at + channels, mask=there, other=0.0, cache_modifier=".ca")
            second = tl.dot(up, seen, second)
            there = (fits & (beside + 1 < width))[:, None] & known
            seen = tl.load(at + 2 * channels, mask=there, other=0.0, cache_modifier=".ca")
            third = tl.dot(up, seen, third)
    if (line == 0) & (tile % into_tiles == 0):
        tl.store(bias_sums + (piece * models + model) * columns + column, alone, mask=column < columns)
    # (piece, model, out, tap, in)
    of = ((piece * models + model) * columns + column[:, None]) * (SIDE * SIDE) + line * SIDE
    mask = (column < columns)[:, None] & (channel < channels)[None, :]
    tl.store(sums + of * channels + channel[None, :], first, mask=mask)
    if SIDE == 3:
        tl.store(sums + (of + 1) * channels + channel[None, :], second, mask=mask)
        tl.store(sums + (of + 2) * channels + channel[None, :], third, mask=mask)


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
    out, into = (min(64, max(16, triton.next_power_of_2(size))) for size in (columns, channels))
    tiles = side * triton.cdiv(columns, out) * triton.cdiv(channels, into)
    pieces = _pieces(x, slope, side)
    sums = x.new_empty(pieces, models, columns, side, side, channels, dtype=torch.float32)
    bias_sums = x.new_empty(pieces, models, columns, dtype=torch.float32)
    piece_rows = triton.cdiv(triton.cdiv(rows, pieces), 64) * 64
    _weight_sums[(tiles, pieces, models)](
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
    tile = min(128, max(16, triton.next_power_of_2(columns)))
    of_out, of_line, of_tap, of_into = weight.stride()[1:]
    assert of_line == side * of_tap
    assert of_into == 1
    _product[(triton.cdiv(rows, 128) * triton.cdiv(columns, tile), models)](
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
