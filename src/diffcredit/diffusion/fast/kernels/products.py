"""Convolutions as products of matrices, for many networks at once.

With few channels the cost is not the products but the instructions that compute addresses. So sizes are compile-time
constants, and a pixel's address and its existing neighbours are computed once.
"""

import triton
import triton.language as tl


@triton.jit
def _seen(first, SIZE: tl.constexpr, SIDE: tl.constexpr, STRIDE: tl.constexpr, BACK: tl.constexpr):
    """Return, as bits, which of ``SIDE`` taps fall on one of ``SIZE`` positions. Forward, tap v falls on first + v;
    back, on (first − v) / stride if that is an integer."""
    bits = tl.zeros_like(first)
    for tap in tl.static_range(SIDE):
        if BACK:
            place = first - tap
            found = (place >= 0) & (place < SIZE * STRIDE) & (place % STRIDE == 0)
        else:
            place = first + tap
            found = (place >= 0) & (place < SIZE)
        bits = bits | (found.to(tl.int32) << tap)
    return bits


@triton.jit
def product(
    x,
    weight,
    bias,
    added,
    y,
    rows,
    weight_model,
    bias_model,
    by_column,
    by_channel,
    by_tap,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    Y_HEIGHT: tl.constexpr,
    Y_WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    SIDE: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    BACK: tl.constexpr,
    BIAS: tl.constexpr,
    ADDED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TERMS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute one tile of y (rows, columns) of one model, plus ``added``. ``BACK``: from the gradient of the output to
    that of the input."""
    model = tl.program_id(1).to(tl.int64)
    tiles: tl.constexpr = (OUTPUTS + COLUMNS - 1) // COLUMNS
    row = (tl.program_id(0) // tiles) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    image = row // (Y_HEIGHT * Y_WIDTH)
    top = (row // Y_WIDTH) % Y_HEIGHT
    left = row % Y_WIDTH
    known = row < rows
    wanted = column < OUTPUTS
    terms = tl.arange(0, TERMS)
    pictures = rows // (Y_HEIGHT * Y_WIDTH)
    x += model * pictures * (HEIGHT * WIDTH * CHANNELS)
    weight += model * weight_model
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    if CHANNELS >= 16:
        if BACK:
            above = top + PADDING
            beside = left + PADDING
        else:
            above = top * STRIDE - PADDING
            beside = left * STRIDE - PADDING
        lines = tl.where(known, _seen(above, HEIGHT, SIDE, STRIDE, BACK), 0)
        sides = _seen(beside, WIDTH, SIDE, STRIDE, BACK)
        if BACK:
            above = above // STRIDE
            beside = beside // STRIDE
        at = x + (((image * HEIGHT + above) * WIDTH + beside) * CHANNELS)[:, None] + terms[None, :]
        blocks: tl.constexpr = (CHANNELS + TERMS - 1) // TERMS
        if BACK:
            of = weight + terms[:, None] * by_channel + column[None, :] * by_column
        else:
            of = weight + column[:, None] * by_column + terms[None, :] * by_channel
        for step in range(SIDE * SIDE * blocks):
            tap = step // blocks
            channel = (step % blocks) * TERMS
            line = tap // SIDE
            side = tap % SIDE
            fits = ((lines >> line) & (sides >> side) & 1) != 0
            moved = -((line // STRIDE) * WIDTH + side // STRIDE) if BACK else line * WIDTH + side
            there = fits[:, None]
            asked = wanted[None, :] if BACK else wanted[:, None]
            if CHANNELS % TERMS != 0:
                within = channel + terms < CHANNELS
                there = there & within[None, :]
                asked = asked & (within[:, None] if BACK else within[None, :])
            seen = tl.load(at + (moved * CHANNELS + channel), mask=there, other=0.0)
            factor = tl.load(of + (tap * by_tap + channel * by_channel), mask=asked, other=0.0)
            if not BACK:
                factor = tl.trans(factor)
            total = tl.dot(seen, factor, total, input_precision=PRECISION)
    else:
        for step in range((SIDE * SIDE * CHANNELS + TERMS - 1) // TERMS):
            term = step * TERMS + terms
            tap = term // CHANNELS
            channel = term % CHANNELS
            if BACK:
                above = top[:, None] + PADDING - (tap // SIDE)[None, :]
                beside = left[:, None] + PADDING - (tap % SIDE)[None, :]
                fits = (above % STRIDE == 0) & (beside % STRIDE == 0) & (above >= 0) & (beside >= 0)
                above, beside = above // STRIDE, beside // STRIDE
            else:
                above = top[:, None] * STRIDE - PADDING + (tap // SIDE)[None, :]
                beside = left[:, None] * STRIDE - PADDING + (tap % SIDE)[None, :]
                fits = (above >= 0) & (beside >= 0)
            there = (tap < SIDE * SIDE)[None, :]
            fits = fits & (above < HEIGHT) & (beside < WIDTH) & known[:, None] & there
            place = ((image[:, None] * HEIGHT + above) * WIDTH + beside) * CHANNELS + channel[None, :]
            seen = tl.load(x + place, mask=fits, other=0.0)
            of = tap * by_tap + channel * by_channel
            factor = tl.load(
                weight + column[:, None] * by_column + of[None, :], mask=wanted[:, None] & there, other=0.0
            )
            total = tl.dot(seen, tl.trans(factor), total, input_precision=PRECISION)
    if BIAS:
        own = tl.load(bias + model * bias_model + column, mask=wanted, other=0.0)
        total += own[None, :].to(tl.float32)
    to = (model * rows + row)[:, None] * OUTPUTS + column[None, :]
    mask = known[:, None] & wanted[None, :]
    if ADDED:
        total += tl.load(added + to, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + to, total.to(y.dtype.element_ty), mask=mask)
