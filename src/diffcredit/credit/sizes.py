"""The distribution of sizes that coalitions were drawn with, for importance weights."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc

from diffcredit.coalitions import size_probabilities
from diffcredit.credit.inputs import float_array
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray

IntArray = NDArray[np.intp]

# A table is refused if its sizes are less probable than this under the stated distribution.
LEAST_PROBABILITY = 1e-6
LEAST_EXPECTED = 5.0


@dataclass(frozen=True, eq=False)
class SizeDistribution:
    """The probabilities (n−1,) of the sizes 1, …, n−1, and their name for messages."""

    name: str
    probabilities: FloatArray

    @classmethod
    def of(cls, given: str | ArrayLike, n: int) -> Self:
        """Return the distribution, given a design's name or the probabilities."""
        if isinstance(given, str):
            return cls(repr(given), size_probabilities(given, n))
        p = float_array("size_distribution", given)
        if p.shape != (n - 1,) or not np.isfinite(p).all() or (p < 0).any() or abs(p.sum() - 1) > 1e-6:
            raise UserError(
                f"size_distribution of shape {p.shape}: expected a design's name or the {n - 1} probabilities of the "
                f"sizes 1 to {n - 1}, which sum to 1"
            )
        return cls("as given", p)

    def weights(self, sizes: IntArray, draws: FloatArray, target: FloatArray) -> FloatArray:
        """Return (m,): ``target`` (n−1,) over the probability that a row's size was drawn with.

        Raises UserError if the sizes contradict the distribution, given each row's number of independent ``draws``.
        """
        self._check(np.bincount(sizes - 1, draws, minlength=len(self.probabilities)).astype(np.float64))
        return target[sizes - 1] / self.probabilities[sizes - 1]

    def _check(self, counts: FloatArray) -> None:
        """Test the counts by Pearson's chi-square, with neighbouring sizes merged until 5 evaluations are expected."""
        drawn = self.probabilities
        impossible = np.flatnonzero((counts > 0) & (drawn == 0))
        if len(impossible):
            raise UserError(f"size_distribution {self.name}: never draws coalitions of size {impossible[0] + 1}")
        expected = counts.sum() * drawn
        group = np.floor(np.cumsum(expected) / LEAST_EXPECTED - 1e-9).astype(np.intp)
        # The last group joins its neighbour if fewer than 5 are expected.
        group = np.clip(group, 0, max(int(expected.sum() / LEAST_EXPECTED) - 1, 0))
        seen, wanted = np.bincount(group, counts), np.bincount(group, expected)
        seen, wanted = seen[wanted > 0], wanted[wanted > 0]
        statistic = ((seen - wanted) ** 2 / wanted).sum()
        if len(wanted) > 1 and chdtrc(len(wanted) - 1, statistic) < LEAST_PROBABILITY:
            raise UserError(
                f"size_distribution {self.name}: contradicts the coalitions' sizes (chi-square {statistic:.0f} with "
                f"{len(wanted) - 1} degrees of freedom); name the design they were drawn with, or give the "
                "probabilities of their sizes"
            )
