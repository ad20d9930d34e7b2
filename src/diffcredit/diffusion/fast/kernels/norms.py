"""Group normalisation of channels-last images, with the operations around it in a residual block: a shift of each
image's channels before, and SiLU after. Both directions read their inputs once and are bound by the few operations per
number, so the constants of a channel are combined before its pixels are read.

Images may come in two parts, the first ``SPLIT`` channels in one tensor and the rest in another, as at a U-Net's skip
connections; then they need not be concatenated first.
"""

import triton
import triton.language as tl


@triton.jit
def _sigmoid(z):
    """1 / (1 + e^−z), by a reciprocal root, which is several times faster than a division."""
    root = tl.rsqrt(1.0 + tl.exp2(z * -1.4426950408889634))
    return root * root


@triton.jit
def _lanes(channels, EACH: tl.constexpr, GROUPS: tl.constexpr, CHANNELS: tl.constexpr):
    """Return the lanes of this program, their channels, and which lanes have one."""
    lane = tl.arange(0, CHANNELS)
    channel = tl.program_id(0) * (GROUPS * EACH) + lane
    return lane, channel, (lane < GROUPS * EACH) & (channel < channels)


@triton.jit
def _over_groups(values, lane, EACH: tl.constexpr):
    """Return for each lane the sum over the lanes of its group."""
    group = lane // EACH
    return tl.sum(tl.where(group[:, None] == group[None, :], values[None, :], 0.0), axis=1)


@triton.jit
def _pixels(x, other, start, pixel, channel, mask, channels, SPLIT: tl.constexpr):
    """Load a tile (pixels, channels) from pixel ``start`` on, as float32."""
    if SPLIT == 0:
        at = x + start * channels + (pixel[:, None] * channels + channel[None, :])
        return tl.load(at, mask=mask, other=0.0).to(tl.float32)
    rest = channels - SPLIT
    at = x + start * SPLIT + (pixel[:, None] * SPLIT + channel[None, :])
    seen = tl.load(at, mask=mask & (channel < SPLIT)[None, :], other=0.0).to(tl.float32)
    at = other + start * rest + (pixel[:, None] * rest + (channel - SPLIT)[None, :])
    return seen + tl.load(at, mask=mask & (channel >= SPLIT)[None, :], other=0.0).to(tl.float32)


@triton.jit
def _put(values, x, other, start, pixel, channel, mask, channels, SPLIT: tl.constexpr):
    """Store a tile where :func:`_pixels` loads it."""
    values = values.to(x.dtype.element_ty)
    if SPLIT == 0:
        tl.store(x + start * channels + (pixel[:, None] * channels + channel[None, :]), values, mask=mask)
    else:
        rest = channels - SPLIT
        at = x + start * SPLIT + (pixel[:, None] * SPLIT + channel[None, :])
        tl.store(at, values, mask=mask & (channel < SPLIT)[None, :])
        at = other + start * rest + (pixel[:, None] * rest + (channel - SPLIT)[None, :])
        tl.store(at, values, mask=mask & (channel >= SPLIT)[None, :])


@triton.jit
def norm(
    x,
    other,
    shift,
    weight,
    bias,
    y,
    means,
    scales,
    pixels,
    channels,
    groups,
    images,
    eps,
    EACH: tl.constexpr,
    GROUPS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PIXELS: tl.constexpr,
    WHOLE: tl.constexpr,
    SPLIT: tl.constexpr,
    SHIFTED: tl.constexpr,
    SILU: tl.constexpr,
):
    """Compute y = SiLU(w x̂ + b) for one image's ``GROUPS`` groups of ``EACH`` channels, with x̂ = (x + shift − mean) ·
    scale. ``images`` in a row share their weights. ``WHOLE``: all pixels fit into registers, else they are read
    twice."""
    image = tl.program_id(1).to(tl.int64)
    lane, channel, known = _lanes(channels, EACH, GROUPS, CHANNELS)
    pixel = tl.arange(0, PIXELS)
    start = image * pixels
    total = tl.zeros((CHANNELS,), dtype=tl.float32)
    squares = tl.zeros((CHANNELS,), dtype=tl.float32)
    seen = tl.zeros((PIXELS, CHANNELS), dtype=tl.float32)
    for first in range(0, 1 if WHOLE else pixels, PIXELS):
        mask = known[None, :] & (first + pixel < pixels)[:, None]
        seen = _pixels(x, other, start + first, pixel, channel, mask, channels, SPLIT)
        total += tl.sum(seen, axis=0)
        squares += tl.sum(seen * seen, axis=0)
    moved = tl.zeros((CHANNELS,), dtype=tl.float32)
    if SHIFTED:
        # of x + s: Σ (x + s) = Σ x + n s, and Σ (x + s)² = Σ x² + s (2 Σ x + n s)
        moved = tl.load(shift + image * channels + channel, mask=known, other=0.0).to(tl.float32)
        squares += moved * (2.0 * total + pixels * moved)
        total += pixels * moved
    count = EACH * pixels.to(tl.float32)
    mean = _over_groups(total, lane, EACH) / count
    scale = tl.rsqrt(tl.maximum(_over_groups(squares, lane, EACH) / count - mean * mean, 0.0) + eps)
    of = image * groups + channel // EACH
    tl.store(means + of, mean, mask=known & (lane % EACH == 0))
    tl.store(scales + of, scale, mask=known & (lane % EACH == 0))
    own = (image // images) * channels + channel
    factor = scale * tl.load(weight + own, mask=known, other=0.0).to(tl.float32)
    constant = tl.load(bias + own, mask=known, other=0.0).to(tl.float32) + (moved - mean) * factor
    for first in range(0, 1 if WHOLE else pixels, PIXELS):
        mask = known[None, :] & (first + pixel < pixels)[:, None]
        if not WHOLE:
            seen = _pixels(x, other, start + first, pixel, channel, mask, channels, SPLIT)
        z = seen * factor[None, :] + constant[None, :]
        if SILU:
            z = z * _sigmoid(z)
        _put(z, y, y, start + first, pixel, channel, mask, channels, 0)


@triton.jit
def _risen(slope, seen, factor, constant, SILU: tl.constexpr):
    """Return the slope before SiLU, given that after it."""
    if SILU:
        z = seen * factor[None, :] + constant[None, :]
        gate = _sigmoid(z)
        slope = slope * gate * (1.0 + z - z * gate)
    return slope


@triton.jit
def norm_slopes(
    slopes,
    x,
    other,
    shift,
    weight,
    bias,
    means,
    scales,
    added,
    other_added,
    x_slopes,
    other_slopes,
    sums,
    pixels,
    channels,
    groups,
    images,
    EACH: tl.constexpr,
    GROUPS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PIXELS: tl.constexpr,
    WHOLE: tl.constexpr,
    SPLIT: tl.constexpr,
    SHIFTED: tl.constexpr,
    SILU: tl.constexpr,
    ADDED: tl.constexpr,
):
    """Compute from the slopes of y those of x, plus ``added``; and for each image's channels, in ``sums`` (3, n,
    channels), the slopes of the weights, the biases and the shifts."""
    image = tl.program_id(1).to(tl.int64)
    lane, channel, known = _lanes(channels, EACH, GROUPS, CHANNELS)
    pixel = tl.arange(0, PIXELS)
    start = image * pixels
    own = (image // images) * channels + channel
    w = tl.load(weight + own, mask=known, other=0.0).to(tl.float32)
    of = image * groups + channel // EACH
    scale = tl.load(scales + of, mask=known, other=0.0)
    centre = tl.load(means + of, mask=known, other=0.0)
    if SHIFTED:
        centre -= tl.load(shift + image * channels + channel, mask=known, other=0.0).to(tl.float32)
    factor = scale * w
    constant = tl.load(bias + own, mask=known, other=0.0).to(tl.float32) - centre * factor
    alone = tl.zeros((CHANNELS,), dtype=tl.float32)
    times = tl.zeros((CHANNELS,), dtype=tl.float32)
    total = tl.zeros((CHANNELS,), dtype=tl.float32)
    seen = tl.zeros((PIXELS, CHANNELS), dtype=tl.float32)
    slope = tl.zeros((PIXELS, CHANNELS), dtype=tl.float32)
    for first in range(0, 1 if WHOLE else pixels, PIXELS):
        mask = known[None, :] & (first + pixel < pixels)[:, None]
        seen = _pixels(x, other, start + first, pixel, channel, mask, channels, SPLIT)
        slope = _pixels(slopes, slopes, start + first, pixel, channel, mask, channels, 0)
        slope = _risen(slope, seen, factor, constant, SILU)
        alone += tl.sum(slope, axis=0)
        times += tl.sum(slope * seen, axis=0)
        total += tl.sum(seen, axis=0)
    # so far with x itself; with x̂ = (x − centre) · scale:
    times = scale * (times - centre * alone)
    normal = scale * (total - pixels * centre)
    count = EACH * pixels.to(tl.float32)
    mean = _over_groups(w * alone, lane, EACH) / count
    along = _over_groups(w * times, lane, EACH) / count
    n = tl.num_programs(1)
    to = sums + image * channels + channel
    tl.store(to, times, mask=known)
    tl.store(to + n * channels, alone, mask=known)
    tl.store(to + 2 * n * channels, scale * (w * alone - pixels * mean - normal * along), mask=known)
    # slope of x: scale · (w slope − mean − x̂ · along)
    by_x = -scale * scale * along
    rest = -scale * mean - by_x * centre
    for first in range(0, 1 if WHOLE else pixels, PIXELS):
        mask = known[None, :] & (first + pixel < pixels)[:, None]
        if not WHOLE:
            seen = _pixels(x, other, start + first, pixel, channel, mask, channels, SPLIT)
            slope = _pixels(slopes, slopes, start + first, pixel, channel, mask, channels, 0)
            slope = _risen(slope, seen, factor, constant, SILU)
        down = slope * factor[None, :] + (seen * by_x[None, :] + rest[None, :])
        if ADDED:
            down += _pixels(added, other_added, start + first, pixel, channel, mask, channels, SPLIT)
        _put(down, x_slopes, other_slopes, start + first, pixel, channel, mask, channels, SPLIT)
