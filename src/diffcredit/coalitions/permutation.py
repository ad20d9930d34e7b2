"""Random permutations of the contributors, as the prefixes of each."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.coalitions.design import check_request
from diffcredit.coalitions.members import Allowed, random_order, stack, stream
from diffcredit.coalitions.sizes import equal_sizes
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray

TRIES = 10_000


@dataclass(frozen=True)
class Permutation:
    """Rows k(n−1) … (k+1)(n−1)−1 are the proper prefixes of permutation k, smallest first.

    With F(∅) before and F(N) after them, the differences of consecutive values are the marginal contributions along
    the permutation. A permutation with an excluded prefix is drawn again.
    """

    seed: int = 0

    @staticmethod
    def size_probabilities(n: int) -> FloatArray:
        return equal_sizes(n)

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        allowed = Allowed(n, exclude)
        for size in range(1, n):
            allowed.count(size)
        permutations = range(start // (n - 1), -(-(start + count) // (n - 1)))
        rows = [row for index in permutations for row in self._prefixes(n, index, allowed)]
        return stack(rows, n)[start % (n - 1) :][:count]

    def _prefixes(self, n: int, index: int, allowed: Allowed) -> BoolArray:
        """Return (n−1, n): the prefixes of sizes 1, …, n−1 of permutation ``index``."""
        generator = stream("permutation", self.seed, n, index)
        for _ in range(TRIES):
            positions = random_order(generator, n)
            prefixes = positions < np.arange(1, n)[:, None]
            if all(row in allowed for row in prefixes):
                return prefixes
        raise UserError(
            f"exclude: in {TRIES} random permutations of {n} contributors none without an excluded prefix; "
            "exclude fewer coalitions"
        )
