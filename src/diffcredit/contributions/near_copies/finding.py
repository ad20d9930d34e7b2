"""Which images are near-copies of one another: hashes propose pairs, pixels confirm them.

A perceptual hash keeps the coarsest shapes of a picture in 64 bits. Two pictures are compared where few bits differ:
between the whole of one, or its mirror image, and the whole or a part of the other. Every pair so found is laid over
one another, moved and enlarged as a crop would be, and is confirmed only where the pixels agree, in the whole and in
every small place. So two drawings of one template, such as two faces with different eyes, stay two works.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions.near_copies.looks import SIDE, VIEWS, WHOLE, View, hashes, looks_of, mirrored, part, seen
from diffcredit.errors import UserError
from diffcredit.util.notes import note, noted
from diffcredit.util.progress import Progress, silent

SEARCH = 2  # to be raised with every change of this file that finds other pairs
DISTANCE = 12
"""Of the 64 bits of two hashes, how many may differ by default."""
MOST_PAIRS = 10_000_000
ALIKE, COARSELY_ALIKE = 0.85, 0.5
"""The least correlation of the pixels of a confirmed pair, and of a proposed one at ``COARSE`` pixels a side."""
APART = 0.7
"""The largest difference in one small place, in standard deviations of the pixels."""
COARSE, MIDDLE = 8, 16  # pixels a side: to drop most proposals, to lay two images over one another
STEP, SHIFT = 0.05, 0.25  # by how much the scale and the place are varied
FLAT = 2.0  # a standard deviation below which an image has no shapes to compare, of 255
MANY = 1000  # images, from which a search takes seconds
ROWS, COLUMNS, AT_ONCE = 64, 4096, 1024  # of a tile of hashes: it must fit into a processor's cache; pairs at once


@dataclass(frozen=True, eq=False)
class Pairs:
    """Near-copies among m images. Byte-identical images are one *class*; pairs are of classes."""

    class_of: tuple[int, ...]
    """(m,) the class of each image; classes are numbered by their first images."""
    one: NDArray[np.int64]
    """(k,) the lower class of each pair."""
    two: NDArray[np.int64]
    distance: NDArray[np.int64]
    """(k,) in how many bits the hashes differ, of the views that are most alike."""
    mirrored: NDArray[np.bool_]
    """(k,) whether one is alike to the other's mirror image."""


def find_pairs(images: Sequence[NDArray[np.uint8]], distance: int = DISTANCE, progress: Progress = silent) -> Pairs:
    """Return the pairs of near-copies among square ``images``, (h, h, 3) each, whose hashes differ in at most
    ``distance`` bits. What was found is noted on this machine, and not searched again."""
    numbers: dict[bytes, int] = {}
    class_of = tuple(numbers.setdefault(hashlib.sha256(image.tobytes()).digest(), len(numbers)) for image in images)
    about = [SEARCH, distance, hashlib.sha256(b"".join(numbers)).hexdigest()]
    columns = noted("near-copies", about)
    if columns is None:
        first = {number: row for row, number in reversed([*enumerate(class_of)])}
        found = search(looks_of([images[first[number]] for number in range(len(numbers))]), distance, progress)
        columns = [column.tolist() for column in found]
        note("near-copies", about, columns)
    one, two, bits, mirrored = columns
    return Pairs(class_of, *(np.array(each, dtype=np.int64) for each in (one, two, bits)), np.array(mirrored, np.bool_))


def search(looks: NDArray[np.uint8], distance: int, progress: Progress = silent) -> tuple[NDArray[Any], ...]:
    """Return the pairs among distinct ``looks``, (m, SIDE, SIDE, 3), as the last four columns of :class:`Pairs`."""
    shaped = np.flatnonzero([look.std() >= FLAT for look in looks])
    one, two, view, bits = _confirmed(looks[shaped], *_proposed(looks[shaped], distance, progress))
    low, high = np.minimum(one, two), np.maximum(one, two)
    best = np.lexsort((view, bits, high, low))
    best = best[np.diff(low[best] * len(looks) + high[best], prepend=-1) != 0]
    return shaped[low[best]], shaped[high[best]], bits[best], view[best] >= len(VIEWS)


Proposals = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""One image's row, the other's, the number of the view of the first that is alike to the other, differing bits. A view
that is alike to the other's mirror image has the number of that view + ``len(VIEWS)``."""


def _proposed(looks: NDArray[np.uint8], distance: int, progress: Progress) -> Proposals:
    """Return the pairs whose hashes are close and whose pixels are coarsely alike."""
    found: list[Proposals] = []
    told = progress if len(looks) >= MANY else silent
    wholes = _described(looks, WHOLE), _described(mirrored(looks), WHOLE)
    count = 0
    for number, view in enumerate(VIEWS):
        told("comparing views of images", number, len(VIEWS))
        hashed, prints = _described(looks, view)
        for turned, (whole, coarse) in enumerate(wholes):
            for one, two, bits in _close(hashed, whole, distance, symmetric=view == WHOLE):
                alike = np.einsum("kd,kd->k", prints[one], coarse[two]) >= COARSELY_ALIKE
                one, two, bits = one[alike], two[alike], bits[alike]
                found.append((one, two, np.full(len(one), number + turned * len(VIEWS)), bits))
                count += len(one)
                if count > MOST_PAIRS:
                    raise UserError(
                        f"near_copies.distance: {distance} proposes over {MOST_PAIRS:,} pairs of images; a smaller "
                        "number of bits is accepted"
                    )
    told("comparing views of images", len(VIEWS), len(VIEWS))
    nothing = (np.empty(0, np.int64),) * 4
    one, two, view, bits = (np.concatenate(column) for column in zip(nothing, *found, strict=True))
    return one, two, view, bits


def _described(looks: NDArray[np.uint8], view: View) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    """Return the hash and the coarse pixels of the ``view`` of each of ``looks``."""
    found = []
    for start in range(0, max(len(looks), 1), AT_ONCE):  # the views of all at once would not fit into the memory
        viewed = seen(looks[start : start + AT_ONCE], view)
        found.append((hashes(viewed), _unit(_reduced(viewed, COARSE))))
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def _close(
    one: NDArray[np.uint64], two: NDArray[np.uint64], distance: int, *, symmetric: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the rows of ``one`` and of ``two`` whose hashes differ in at most ``distance`` bits, with that number, but
    for those of the same image; ``symmetric``: each pair once."""
    for start in range(0, len(one), ROWS):
        part_of_one = one[start : start + ROWS, None]
        for begin in range(start // COLUMNS * COLUMNS if symmetric else 0, len(two), COLUMNS):
            bits = np.bitwise_count(part_of_one ^ two[None, begin : begin + COLUMNS])
            rows, columns = np.nonzero(bits <= distance)
            first, second = rows + start, columns + begin
            kept = first < second if symmetric else first != second
            if kept.any():
                yield first[kept], second[kept], bits[rows[kept], columns[kept]].astype(np.int64)


def _confirmed(
    looks: NDArray[np.uint8],
    one: NDArray[np.int64],
    two: NDArray[np.int64],
    view: NDArray[np.int64],
    bits: NDArray[np.int64],
) -> Proposals:
    """Return the proposed pairs whose pixels agree."""
    agree = np.zeros(len(one), dtype=np.bool_)
    for number in range(2 * len(VIEWS)):
        rows = np.flatnonzero(view == number)
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE]
            others = looks[two[some]] if number < len(VIEWS) else mirrored(looks[two[some]])
            agree[some] = _agree(looks[one[some]], others, VIEWS[number % len(VIEWS)])
    return one[agree], two[agree], view[agree], bits[agree]


Place = tuple[float, float, float]
"""A part of an image, as scale, left and top."""


def _agree(one: NDArray[np.uint8], two: NDArray[np.uint8], view: View) -> NDArray[np.bool_]:
    """Return for which pairs of looks the ``view`` of one, moved and enlarged a little, has the pixels of the other."""
    places, agree = _places(view), np.zeros(len(one), dtype=np.bool_)
    nearest = _nearest(one, two, places, MIDDLE)
    for number, place in enumerate(places):
        rows = np.flatnonzero(nearest == number)
        closer = _around(place, STEP / 2, SHIFT / 2)
        exactly = _nearest(one[rows], two[rows], closer, SIDE)
        for each, close in enumerate(closer):
            some = rows[exactly == each]
            a, b = _standardised(part(one[some], *close)), _standardised(two[some].astype(np.float32))
            apart = np.sqrt((_reduced(b - a, SIDE // 2) ** 2).mean(axis=3)).max(axis=(1, 2), initial=0)
            agree[some] = ((a * b).mean(axis=(1, 2, 3)) >= ALIKE) & (apart <= APART)
    return agree


def _nearest(one: NDArray[np.uint8], two: NDArray[np.uint8], places: Sequence[Place], side: int) -> NDArray[np.intp]:
    """Return the number of the place in each of ``one`` that is most like the other, at ``side`` pixels a side."""
    small, target = _reduced(one, side), _unit(_reduced(two, side))
    return np.stack([np.einsum("kd,kd->k", _unit(part(small, *place)), target) for place in places]).argmax(axis=0)


def _places(view: View) -> list[Place]:
    """Return the parts of an image near a ``view`` that a copy may show: of the whole, all parts of nearly its size."""
    if view != WHOLE:
        return _around((view.scale, view.left, view.top), STEP, SHIFT)
    anywhere = [place / 4 for place in range(5)]
    return [(1.0, 0.5, 0.5), *((1 - STEP, left, top) for left in anywhere for top in anywhere)]


def _around(place: Place, step: float, shift: float) -> list[Place]:
    """Return ``place`` and those beside it by a ``step`` of scale and a ``shift`` at most; those of scale 1 once."""
    scale, *corner = place
    scales = [each for each in (scale, scale + step, scale - step) if each < 1]
    lefts, tops = (sorted({min(max(each + by, 0.0), 1.0) for by in (-shift, 0.0, shift)}) for each in corner)
    found = [(each, left, top) for each in scales for left in lefts for top in tops]
    return [(1.0, 0.5, 0.5), *found] if scale + step >= 1 else found


def _reduced(pixels: NDArray[Any], side: int) -> NDArray[np.float32]:
    """Return square images (k, s, s, 3) with every block of pixels averaged, (k, side, side, 3)."""
    block = pixels.shape[1] // side
    blocks = pixels.reshape(len(pixels), side, block, side, block, 3)
    return blocks.mean(axis=(2, 4), dtype=np.float32)


def _standardised(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return each image with mean 0 and standard deviation 1, over all its pixels and colours."""
    centred = pixels - pixels.mean(axis=(1, 2, 3), keepdims=True)
    return centred / np.maximum(centred.std(axis=(1, 2, 3), keepdims=True), 1e-3)


def _unit(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return each image as a centred vector of length 1: products of two are correlations."""
    flat = _standardised(pixels).reshape(len(pixels), 3 * pixels.shape[1] ** 2)
    return flat / np.sqrt(np.float32(flat.shape[1]))
