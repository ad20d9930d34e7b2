"""Uniform sizes with systematic quotas, random members, no duplicates: the default design."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.coalitions.design import (
    BoolArray,
    check_contributors,
    check_request,
    count_available,
    excluded_by_size,
    random_coalition,
    row_generator,
)
from diffcredit.seeds import derive_seed

GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Uniform:
    """Every block of n−1 rows holds every size once, and every prefix of a block spreads over all sizes.

    No coalition comes twice while another of its size is left, and none a third time before all of its size
    came twice.
    """

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> NDArray[np.float64]:
        check_contributors(n)
        return np.full(n - 1, 1 / (n - 1))

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        excluded = excluded_by_size(n, exclude)
        taken: defaultdict[int, set[bytes]] = defaultdict(set)
        rows = np.zeros((count, n), dtype=np.bool_)
        # Rows before start are drawn too: what they took must not come again.
        for index, size in enumerate(self._sizes(n, start + count)):
            if len(taken[size]) == count_available(n, size, excluded):
                taken[size].clear()
            generator = row_generator("uniform", self.seed, n, index)
            row = random_coalition(generator, n, size)
            while row.tobytes() in taken[size] or row.tobytes() in excluded.get(size, ()):
                row = random_coalition(generator, n, size)
            taken[size].add(row.tobytes())
            if index >= start:
                rows[index - start] = row
        return rows

    def _sizes(self, n: int, count: int) -> list[int]:
        """The first ``count`` sizes: in each block the sizes in golden-ratio order, rotated at random."""
        # The multiples of the golden ratio modulo 1 fill the unit interval evenly at every length; their
        # ranks are a permutation of the sizes with the same virtue, and the rotation makes each row's size
        # uniform.
        ranks = np.argsort(np.argsort(np.arange(n - 1) * GOLDEN % 1.0, kind="stable"), kind="stable")
        sizes: list[int] = []
        for block in range(-(-count // (n - 1))):
            rotation = derive_seed("coalitions", "uniform", self.seed, n, "sizes", block) % (n - 1)
            sizes.extend(1 + (int(rank) + rotation) % (n - 1) for rank in ranks)
        return sizes[:count]
