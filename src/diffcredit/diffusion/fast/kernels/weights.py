"""Sums over pixels of the output's gradient times the images: the gradients of convolutions' weights. Each program adds up
one piece of the rows for a tile of (out, in) channels; pieces are added up by who calls, so that nothing depends on the
order in which programs run."""

import triton
import triton.language as tl


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
    PRECISION: tl.constexpr,
):
    """For any stride and padding: the 1 or 3 taps of one line of the kernel, which share what is loaded of the
    gradient. ``sums`` (piece, model, out, tap, in), and the gradient's own ``bias_sums`` (piece, model, out)."""
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
        first = tl.dot(up, seen, first, input_precision=PRECISION)
        if SIDE == 3:
            beside += 1
            there = (fits & (beside >= 0) & (beside < width))[:, None] & known
            seen = tl.load(at + channels, mask=there, other=0.0)
            second = tl.dot(up, seen, second, input_precision=PRECISION)
            there = (fits & (beside + 1 < width))[:, None] & known
            seen = tl.load(at + 2 * channels, mask=there, other=0.0)
            third = tl.dot(up, seen, third, input_precision=PRECISION)
    if (line == 0) & (tile % into_tiles == 0):
        tl.store(bias_sums + (piece * models + model) * columns + column, alone, mask=column < columns)
    of = ((piece * models + model) * columns + column[:, None]) * (SIDE * SIDE) + line * SIDE
    mask = (column < columns)[:, None] & (channel < channels)[None, :]
    tl.store(sums + of * channels + channel[None, :], first, mask=mask)
    if SIDE == 3:
        tl.store(sums + (of + 1) * channels + channel[None, :], second, mask=mask)
        tl.store(sums + (of + 2) * channels + channel[None, :], third, mask=mask)


@triton.jit
def _slopes_of_three_lines(slope, row, rows, top, height, width, columns, column):
    """The output's gradient in the lines that a pixel's kernel, one line lower, level or higher, has its middle in."""
    at = slope + row[:, None] * columns + column[None, :]
    known = (row < rows)[:, None] & (column < columns)[None, :]
    lower = tl.load(at + width * columns, mask=known & (top + 1 < height)[:, None], other=0.0)
    level = tl.load(at, mask=known, other=0.0)
    higher = tl.load(at - width * columns, mask=known & (top > 0)[:, None], other=0.0)
    return lower, level, higher


@triton.jit
def weight_lines(
    x,
    slope,
    sums,
    bias_sums,
    rows,
    height,
    width,
    channels,
    columns,
    x_model,
    slope_model,
    piece_rows,
    ROWS: tl.constexpr,
    OUT: tl.constexpr,
    INTO: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """All nine taps of a 3 × 3 kernel with stride 1 and padding 1: three lines of the gradient times a line of the images
    and its two neighbours, so that six tiles that are loaded make nine products."""
    models = tl.num_programs(2)
    model, piece = tl.program_id(2).to(tl.int64), tl.program_id(1)
    into_tiles = tl.cdiv(channels, INTO)
    tile = tl.program_id(0)
    column = (tile // into_tiles) * OUT + tl.arange(0, OUT)
    channel = (tile % into_tiles) * INTO + tl.arange(0, INTO)
    x += model * x_model
    slope += model * slope_model
    a = tl.zeros((OUT, INTO), dtype=tl.float32)
    b = tl.zeros((OUT, INTO), dtype=tl.float32)
    c = tl.zeros((OUT, INTO), dtype=tl.float32)
    d = tl.zeros((OUT, INTO), dtype=tl.float32)
    e = tl.zeros((OUT, INTO), dtype=tl.float32)
    f = tl.zeros((OUT, INTO), dtype=tl.float32)
    g = tl.zeros((OUT, INTO), dtype=tl.float32)
    h = tl.zeros((OUT, INTO), dtype=tl.float32)
    i = tl.zeros((OUT, INTO), dtype=tl.float32)
    alone = tl.zeros((OUT,), dtype=tl.float32)
    for start in range(piece * piece_rows, tl.minimum(rows, (piece + 1) * piece_rows), ROWS):
        row = start + tl.arange(0, ROWS)
        left = row % width
        lower, level, higher = _slopes_of_three_lines(
            slope, row, rows, (row // width) % height, height, width, columns, column
        )
        alone += tl.sum(level.to(tl.float32), axis=0)
        lower, level, higher = tl.trans(lower), tl.trans(level), tl.trans(higher)
        at = x + row[:, None] * channels + channel[None, :]
        known = (row < rows)[:, None] & (channel < channels)[None, :]
        before = tl.load(at - channels, mask=known & (left > 0)[:, None], other=0.0)
        here = tl.load(at, mask=known, other=0.0)
        after = tl.load(at + channels, mask=known & (left + 1 < width)[:, None], other=0.0)
        a = tl.dot(lower, before, a, input_precision=PRECISION)
        b = tl.dot(lower, here, b, input_precision=PRECISION)
        c = tl.dot(lower, after, c, input_precision=PRECISION)
        d = tl.dot(level, before, d, input_precision=PRECISION)
        e = tl.dot(level, here, e, input_precision=PRECISION)
        f = tl.dot(level, after, f, input_precision=PRECISION)
        g = tl.dot(higher, before, g, input_precision=PRECISION)
        h = tl.dot(higher, here, h, input_precision=PRECISION)
        i = tl.dot(higher, after, i, input_precision=PRECISION)
    place = (piece * models + model) * columns + column
    if tile % into_tiles == 0:
        tl.store(bias_sums + place, alone, mask=column < columns)
    to = sums + place[:, None] * 9 * channels + channel[None, :]
    mask = (column < columns)[:, None] & (channel < channels)[None, :]
    tl.store(to, a, mask=mask)
    tl.store(to + channels, b, mask=mask)
    tl.store(to + 2 * channels, c, mask=mask)
    tl.store(to + 3 * channels, d, mask=mask)
    tl.store(to + 4 * channels, e, mask=mask)
    tl.store(to + 5 * channels, f, mask=mask)
    tl.store(to + 6 * channels, g, mask=mask)
    tl.store(to + 7 * channels, h, mask=mask)
    tl.store(to + 8 * channels, i, mask=mask)


@triton.jit
def weight_windows(
    x,
    slope,
    sums,
    bias_sums,
    rows,
    height,
    width,
    channels,
    columns,
    x_model,
    slope_model,
    piece_rows,
    ROWS: tl.constexpr,
    OUT: tl.constexpr,
    INTO: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The same with few channels, for which a tile (out, in) is too small for the tensor cores: a pixel, its two
    neighbours and one place that stays empty side by side make one tile (4 · in, out) of each line."""
    models = tl.num_programs(2)
    model, piece = tl.program_id(2).to(tl.int64), tl.program_id(1)
    into_tiles = tl.cdiv(channels, INTO)
    tile = tl.program_id(0)
    column = (tile // into_tiles) * OUT + tl.arange(0, OUT)
    term = tl.arange(0, 4 * INTO)
    beside = term // INTO
    channel = (tile % into_tiles) * INTO + term % INTO
    known = (channel < channels) & (beside < 3)
    x += model * x_model
    slope += model * slope_model
    first = tl.zeros((4 * INTO, OUT), dtype=tl.float32)
    second = tl.zeros((4 * INTO, OUT), dtype=tl.float32)
    third = tl.zeros((4 * INTO, OUT), dtype=tl.float32)
    alone = tl.zeros((OUT,), dtype=tl.float32)
    for start in range(piece * piece_rows, tl.minimum(rows, (piece + 1) * piece_rows), ROWS):
        row = start + tl.arange(0, ROWS)
        lower, level, higher = _slopes_of_three_lines(
            slope, row, rows, (row // width) % height, height, width, columns, column
        )
        alone += tl.sum(level.to(tl.float32), axis=0)
        place = (row % width)[:, None] + beside[None, :]
        window = tl.load(
            x + (row[:, None] + beside[None, :] - 1) * channels + channel[None, :],
            mask=(row < rows)[:, None] & known[None, :] & (place >= 1) & (place <= width),
            other=0.0,
        )
        window = tl.trans(window)
        first = tl.dot(window, lower, first, input_precision=PRECISION)
        second = tl.dot(window, level, second, input_precision=PRECISION)
        third = tl.dot(window, higher, third, input_precision=PRECISION)
    place = (piece * models + model) * columns + column
    if tile % into_tiles == 0:
        tl.store(bias_sums + place, alone, mask=column < columns)
    to = sums + place[None, :] * 9 * channels + (beside * channels + channel)[:, None]
    mask = (column < columns)[None, :] & known[:, None]
    tl.store(to, first, mask=mask)
    tl.store(to + 3 * channels, second, mask=mask)
    tl.store(to + 6 * channels, third, mask=mask)
