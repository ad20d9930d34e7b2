"""Look-alikes: pairs of images that an extractor's features find much more alike than the rest.

Pixels confirm a copy, but a copy that was recoloured, turned or cropped hard has other pixels. Its features still stand
out: each of the two is more alike to the other than to anything that third contributors gave, by a margin. So do a
study after a master and two drawings from one template, which features cannot distinguish from copies. Look-alikes are
therefore shown to a person and never left out by themselves.

Similarity is the cosine of standardised features. Third contributors set what is usual, because images of one school or
one subject are alike throughout; for two images of one contributor, so do the other images of that contributor.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MARGIN = 0.15
"""By how much the similarity of a pair must exceed all others that count."""
ROWS = 256  # of a block of similarities

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Rivals:
    """What each of m images is most alike to, (m,) each: the ``first`` and ``second`` similarity to images by others,
    which are two different contributors, ``whose`` the first is, and the two largest to the contributor's ``own``."""

    first: Floats
    whose: Numbers
    second: Floats
    own_first: Floats
    own_second: Floats

    def usual(self, rows: Numbers, giver: Numbers, other: Numbers) -> Floats:
        """Return what is usual for images ``rows`` by contributors ``giver`` beside images by ``other``."""
        third = np.where(self.whose[rows] == other, self.second[rows], self.first[rows])
        third = np.where(np.isneginf(third), self.own_first[rows], third)  # there are only two contributors
        own = np.maximum(self.first[rows], self.own_second[rows])
        return np.maximum(np.where(giver == other, own, third), 0)


def lookalikes(vectors: Floats, givers: Sequence[str], margin: float = MARGIN) -> list[tuple[int, int, float]]:
    """Return the pairs of images, by rows of ``vectors`` (m, d), that stand out by ``margin`` or more, and by how much;
    the clearest first. ``givers`` (m,) names who gave each image."""
    if len(vectors) < 2:
        return []
    unit, giver = _standardised(vectors), np.unique(np.array(givers), return_inverse=True)[1].reshape(-1)
    rivals = _rivals(unit, giver)
    found: list[tuple[int, int, float]] = []
    for rows, similar in _blocks(unit, giver):
        one = rows[:, None]
        stands_out = similar - rivals.usual(one, giver[one], giver[None, :])
        places, other = np.nonzero((stands_out >= margin) & (one < np.arange(len(unit))))
        row = rows[places]
        above = similar[places, other] - rivals.usual(other, giver[other], giver[row])
        least = np.minimum(stands_out[places, other], above)
        found += zip(row.tolist(), other.tolist(), least.tolist(), strict=True)
    return sorted((pair for pair in found if pair[2] >= margin), key=lambda pair: (-pair[2], pair[:2]))


def _rivals(unit: Floats, giver: Numbers) -> _Rivals:
    """Return what each image is most alike to."""
    order, m = np.argsort(giver, kind="stable"), len(unit)
    starts = np.flatnonzero(np.diff(giver[order], prepend=-1))
    columns = [np.full(m, -np.inf, dtype=np.float32) for _ in range(4)]
    whose = np.zeros(m, dtype=np.int64)
    first, second, own_first, own_second = columns
    for rows, similar in _blocks(unit, giver):
        own = similar[:, giver == giver[rows[0]]]
        largest = np.sort(own, axis=1)[:, -2:]
        own_first[rows], own_second[rows] = largest[:, -1], largest[:, 0] if own.shape[1] > 1 else -np.inf
        best = np.maximum.reduceat(similar[:, order], starts, axis=1)  # by contributor
        best[:, giver[rows[0]]] = -np.inf
        whose[rows], first[rows] = best.argmax(axis=1), best.max(axis=1)
        best[np.arange(len(rows)), whose[rows]] = -np.inf
        second[rows] = best.max(axis=1)
    return _Rivals(first, whose, second, own_first, own_second)


def _blocks(unit: Floats, giver: Numbers) -> Iterator[tuple[Numbers, Floats]]:
    """Yield rows of one contributor each, and their similarities to all images; −∞ to themselves."""
    for number in range(giver.max() + 1):
        all_rows = np.flatnonzero(giver == number)
        for start in range(0, len(all_rows), ROWS):
            rows = all_rows[start : start + ROWS]
            similar = unit[rows] @ unit.T
            similar[np.arange(len(rows)), rows] = -np.inf
            yield rows, similar


def _standardised(vectors: Floats) -> Floats:
    """Return features of mean 0 and standard deviation 1, as vectors of length 1."""
    centred = vectors - vectors.mean(axis=0)
    spread = centred.std(axis=0)
    scaled = centred / np.where(spread > 0, spread, 1)
    return scaled / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1e-12)
