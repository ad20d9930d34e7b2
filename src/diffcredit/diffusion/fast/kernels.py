"""What :mod:`~diffcredit.diffusion.fast.convolution` runs on a GPU, in Triton's language."""

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
def weight_sums(
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
        there = (fits & (beside >= 0) & (beside < width))[:, None] & known
        seen = tl.load(at, mask=there, other=0.0)
        first = tl.dot(up, seen, first)
        if SIDE == 3:
            beside += 1
            there = (fits & (beside >= 0) & (beside < width))[:, None] & known
            seen = tl.load(at + channels, mask=there, other=0.0)
            second = tl.dot(up, seen, second)
            there = (fits & (beside + 1 < width))[:, None] & known
            seen = tl.load(at + 2 * channels, mask=there, other=0.0)
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
