"""Convolutions as products of matrices, for many networks at once."""

import triton
import triton.language as tl


@triton.jit
def product(
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
    PRECISION: tl.constexpr,
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
            at = x + place[:, None] + channel[None, :]
            seen = tl.load(at, mask=fits[:, None], other=0.0)
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
        total = tl.dot(seen, factor, total, input_precision=PRECISION)
    if BIAS:
        added = tl.load(bias + model * bias_model + column, mask=column < columns, other=0.0)
        total += added[None, :].to(tl.float32)
    tl.store(
        y + model * y_model + row[:, None].to(tl.int64) * columns + column[None, :],
        total.to(y.dtype.element_ty),
        mask=(row < rows)[:, None] & (column < columns)[None, :],
    )
