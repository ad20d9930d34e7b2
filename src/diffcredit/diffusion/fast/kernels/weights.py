"""Gradients of convolutions' weights: sums over pixels of the output's gradient times the images. Each program sums one
piece of the rows for a tile of (out, in) channels. The caller adds the pieces, so that nothing depends on the order in
which programs run."""

import triton
import triton.language as tl


@triton.jit
def _add_up_slopes(
    slope, bias_sums, place, column, first, last, ROWS: tl.constexpr, OUT: tl.constexpr, OUTPUTS: tl.constexpr
):
    """Sum the gradient over the rows from ``first`` to ``last``, for biases. Separate from the products, where it would
    make the tensor cores wait."""
    total = tl.zeros((OUT,), dtype=tl.float32)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        known = (row < last)[:, None] & (column < OUTPUTS)[None, :]
        some = tl.load(slope + row[:, None] * OUTPUTS + column[None, :], mask=known, other=0.0)
        total += tl.sum(some.to(tl.float32), axis=0)
    tl.store(bias_sums + place, total, mask=column < OUTPUTS)


@triton.jit
def weight_sums(
    x,
    slope,
    sums,
    bias_sums,
    rows,
    piece_rows,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    Y_HEIGHT: tl.constexpr,
    Y_WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    SIDE: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    ROWS: tl.constexpr,
    OUT: tl.constexpr,
    INTO: tl.constexpr,
    PRECISION: tl.constexpr,
    BIASED: tl.constexpr,
):
    """For any stride and padding: the 1 or 3 taps of one line of the kernel, which share the loaded gradient. Results
    are ``sums`` (piece, model, out, tap, in) and, if ``BIASED``, ``bias_sums`` (piece, model, out)."""
    models = tl.num_programs(2)
    model, piece = tl.program_id(2).to(tl.int64), tl.program_id(1)
    into_tiles = tl.cdiv(CHANNELS, INTO)
    out_tiles = tl.cdiv(OUTPUTS, OUT)
    line = tl.program_id(0) // (into_tiles * out_tiles)
    tile = tl.program_id(0) % (into_tiles * out_tiles)
    column = (tile // into_tiles) * OUT + tl.arange(0, OUT)
    channel = (tile % into_tiles) * INTO + tl.arange(0, INTO)
    x += model * (rows // (Y_HEIGHT * Y_WIDTH)) * (HEIGHT * WIDTH * CHANNELS)
    slope += model * rows * OUTPUTS
    first = tl.zeros((OUT, INTO), dtype=tl.float32)
    second = tl.zeros((OUT, INTO), dtype=tl.float32)
    third = tl.zeros((OUT, INTO), dtype=tl.float32)
    last = tl.minimum(rows, (piece + 1) * piece_rows)
    for start in range(piece * piece_rows, last, ROWS):
        row = start + tl.arange(0, ROWS)
        image = row // (Y_HEIGHT * Y_WIDTH)
        above = ((row // Y_WIDTH) % Y_HEIGHT) * STRIDE - PADDING + line
        beside = (row % Y_WIDTH) * STRIDE - PADDING
        within = row < rows
        up = tl.load(
            slope + row[:, None] * OUTPUTS + column[None, :],
            mask=within[:, None] & (column < OUTPUTS)[None, :],
            other=0.0,
        )
        up = tl.trans(up)
        fits = within & (above >= 0) & (above < HEIGHT)
        place = ((image * HEIGHT + above) * WIDTH + beside) * CHANNELS
        known = (channel < CHANNELS)[None, :]
        at = x + place[:, None] + channel[None, :]
        there = (fits & (beside >= 0) & (beside < WIDTH))[:, None] & known
        seen = tl.load(at, mask=there, other=0.0)
        first = tl.dot(up, seen, first, input_precision=PRECISION)
        if SIDE == 3:
            beside += 1
            there = (fits & (beside >= 0) & (beside < WIDTH))[:, None] & known
            seen = tl.load(at + CHANNELS, mask=there, other=0.0)
            second = tl.dot(up, seen, second, input_precision=PRECISION)
            there = (fits & (beside + 1 < WIDTH))[:, None] & known
            seen = tl.load(at + 2 * CHANNELS, mask=there, other=0.0)
            third = tl.dot(up, seen, third, input_precision=PRECISION)
    of = ((piece * models + model) * OUTPUTS + column[:, None]) * (SIDE * SIDE) + line * SIDE
    mask = (column < OUTPUTS)[:, None] & (channel < CHANNELS)[None, :]
    tl.store(sums + of * CHANNELS + channel[None, :], first, mask=mask)
    if SIDE == 3:
        tl.store(sums + (of + 1) * CHANNELS + channel[None, :], second, mask=mask)
        tl.store(sums + (of + 2) * CHANNELS + channel[None, :], third, mask=mask)
    if BIASED:  # noqa: SIM102 - known when compiled
        if (line == 0) & (tile % into_tiles == 0):
            place = (piece * models + model) * OUTPUTS + column
            _add_up_slopes(slope, bias_sums, place, column, piece * piece_rows, last, 4 * ROWS, OUT, OUTPUTS)


@triton.jit
def _known(row, rows, column, COUNT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr):
    """Return which numbers of a tile exist; if tiles are ``EVEN``, all of them, known at compile time."""
    known = tl.full((ROWS, COLUMNS), True, dtype=tl.int1)
    if not EVEN:
        known = known & (row < rows)[:, None]
    if COUNT % COLUMNS != 0:
        known = known & (column < COUNT)[None, :]
    return known


@triton.jit
def _slopes_of_three_lines(
    slope,
    row,
    rows,
    column,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    OUT: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Return the output's gradient one line below, at and one line above each pixel."""
    top = (row // WIDTH) % HEIGHT
    at = slope + row[:, None] * OUTPUTS + column[None, :]
    known = _known(row, rows, column, OUTPUTS, ROWS, OUT, EVEN)
    lower = tl.load(at + WIDTH * OUTPUTS, mask=known & (top + 1 < HEIGHT)[:, None], other=0.0)
    level = tl.load(at, mask=known, other=0.0)
    higher = tl.load(at - WIDTH * OUTPUTS, mask=known & (top > 0)[:, None], other=0.0)
    return lower, level, higher


@triton.jit
def weight_lines(
    x,
    slope,
    sums,
    bias_sums,
    rows,
    piece_rows,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    OUT: tl.constexpr,
    INTO: tl.constexpr,
    PRECISION: tl.constexpr,
    BIASED: tl.constexpr,
    EVEN: tl.constexpr,
):
    """All nine taps of a 3 × 3 kernel with stride 1 and padding 1: three lines of the gradient times a line of the
    images and its two shifts, so that six loaded tiles make nine products."""
    models = tl.num_programs(2)
    model, piece = tl.program_id(2).to(tl.int64), tl.program_id(1)
    into_tiles = tl.cdiv(CHANNELS, INTO)
    tile = tl.program_id(0)
    column = (tile // into_tiles) * OUT + tl.arange(0, OUT)
    channel = (tile % into_tiles) * INTO + tl.arange(0, INTO)
    x += model * rows * CHANNELS
    slope += model * rows * OUTPUTS
    a = tl.zeros((OUT, INTO), dtype=tl.float32)
    b = tl.zeros((OUT, INTO), dtype=tl.float32)
    c = tl.zeros((OUT, INTO), dtype=tl.float32)
    d = tl.zeros((OUT, INTO), dtype=tl.float32)
    e = tl.zeros((OUT, INTO), dtype=tl.float32)
    f = tl.zeros((OUT, INTO), dtype=tl.float32)
    g = tl.zeros((OUT, INTO), dtype=tl.float32)
    h = tl.zeros((OUT, INTO), dtype=tl.float32)
    i = tl.zeros((OUT, INTO), dtype=tl.float32)
    last = tl.minimum(rows, (piece + 1) * piece_rows)
    for start in range(piece * piece_rows, last, ROWS):
        row = start + tl.arange(0, ROWS)
        left = row % WIDTH
        lower, level, higher = _slopes_of_three_lines(slope, row, rows, column, HEIGHT, WIDTH, OUTPUTS, ROWS, OUT, EVEN)
        lower, level, higher = tl.trans(lower), tl.trans(level), tl.trans(higher)
        at = x + row[:, None] * CHANNELS + channel[None, :]
        known = _known(row, rows, channel, CHANNELS, ROWS, INTO, EVEN)
        before = tl.load(at - CHANNELS, mask=known & (left > 0)[:, None], other=0.0)
        here = tl.load(at, mask=known, other=0.0)
        after = tl.load(at + CHANNELS, mask=known & (left + 1 < WIDTH)[:, None], other=0.0)
        a = tl.dot(lower, before, a, input_precision=PRECISION)
        b = tl.dot(lower, here, b, input_precision=PRECISION)
        c = tl.dot(lower, after, c, input_precision=PRECISION)
        d = tl.dot(level, before, d, input_precision=PRECISION)
        e = tl.dot(level, here, e, input_precision=PRECISION)
        f = tl.dot(level, after, f, input_precision=PRECISION)
        g = tl.dot(higher, before, g, input_precision=PRECISION)
        h = tl.dot(higher, here, h, input_precision=PRECISION)
        i = tl.dot(higher, after, i, input_precision=PRECISION)
    place = (piece * models + model) * OUTPUTS + column
    to = sums + place[:, None] * 9 * CHANNELS + channel[None, :]
    mask = (column < OUTPUTS)[:, None] & (channel < CHANNELS)[None, :]
    tl.store(to, a, mask=mask)
    tl.store(to + CHANNELS, b, mask=mask)
    tl.store(to + 2 * CHANNELS, c, mask=mask)
    tl.store(to + 3 * CHANNELS, d, mask=mask)
    tl.store(to + 4 * CHANNELS, e, mask=mask)
    tl.store(to + 5 * CHANNELS, f, mask=mask)
    tl.store(to + 6 * CHANNELS, g, mask=mask)
    tl.store(to + 7 * CHANNELS, h, mask=mask)
    tl.store(to + 8 * CHANNELS, i, mask=mask)
    if BIASED:  # noqa: SIM102 - known when compiled
        if tile % into_tiles == 0:
            _add_up_slopes(slope, bias_sums, place, column, piece * piece_rows, last, 4 * ROWS, OUT, OUTPUTS)


@triton.jit
def weight_windows(
    x,
    slope,
    sums,
    bias_sums,
    rows,
    piece_rows,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    OUT: tl.constexpr,
    INTO: tl.constexpr,
    PRECISION: tl.constexpr,
    BIASED: tl.constexpr,
    EVEN: tl.constexpr,
):
    """The same with few channels, where a tile (out, in) is too small for the tensor cores: a pixel, its two neighbours
    and one empty position together make one tile (4 · in, out) of each line."""
    models = tl.num_programs(2)
    model, piece = tl.program_id(2).to(tl.int64), tl.program_id(1)
    into_tiles = tl.cdiv(CHANNELS, INTO)
    tile = tl.program_id(0)
    column = (tile // into_tiles) * OUT + tl.arange(0, OUT)
    term = tl.arange(0, 4 * INTO)
    beside = term // INTO
    channel = (tile % into_tiles) * INTO + term % INTO
    known = beside < 3
    if CHANNELS % INTO != 0:
        known = known & (channel < CHANNELS)
    x += model * rows * CHANNELS
    slope += model * rows * OUTPUTS
    first = tl.zeros((4 * INTO, OUT), dtype=tl.float32)
    second = tl.zeros((4 * INTO, OUT), dtype=tl.float32)
    third = tl.zeros((4 * INTO, OUT), dtype=tl.float32)
    last = tl.minimum(rows, (piece + 1) * piece_rows)
    for start in range(piece * piece_rows, last, ROWS):
        row = start + tl.arange(0, ROWS)
        lower, level, higher = _slopes_of_three_lines(slope, row, rows, column, HEIGHT, WIDTH, OUTPUTS, ROWS, OUT, EVEN)
        place = (row % WIDTH)[:, None] + beside[None, :]
        there = known[None, :]
        if not EVEN:
            there = there & (row < rows)[:, None]
        window = tl.load(
            x + (row[:, None] + beside[None, :] - 1) * CHANNELS + channel[None, :],
            mask=there & (place >= 1) & (place <= WIDTH),
            other=0.0,
        )
        window = tl.trans(window)
        first = tl.dot(window, lower, first, input_precision=PRECISION)
        second = tl.dot(window, level, second, input_precision=PRECISION)
        third = tl.dot(window, higher, third, input_precision=PRECISION)
    place = (piece * models + model) * OUTPUTS + column
    to = sums + place[None, :] * 9 * CHANNELS + (beside * CHANNELS + channel)[:, None]
    mask = (column < OUTPUTS)[None, :] & known[:, None]
    tl.store(to, first, mask=mask)
    tl.store(to + 3 * CHANNELS, second, mask=mask)
    tl.store(to + 6 * CHANNELS, third, mask=mask)
    if BIASED:  # noqa: SIM102 - known when compiled
        if tile % into_tiles == 0:
            _add_up_slopes(slope, bias_sums, place, column, piece * piece_rows, last, 4 * ROWS, OUT, OUTPUTS)
