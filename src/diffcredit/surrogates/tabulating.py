"""Tables of a surrogate's values, from which its own credits are estimated."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from diffcredit.coalitions import make_design
from diffcredit.coalitions.designs import LARGEST
from diffcredit.surrogates.base import Surrogate
from diffcredit.util.arrays import BoolArray


@dataclass(frozen=True, eq=False)
class SurrogateTable:
    """The input for an estimate of G's credits. G(∅) is missing: it sets the level of the credits alone.

    ``coalitions`` (m, n) without the empty and the full one, ``values`` (m,), ``full`` = G(N), and the design that the
    coalitions are from: ``exhaustive`` when they are all, so that the credits are exact.
    """

    coalitions: BoolArray
    values: NDArray[np.float64]
    full: float
    size_distribution: str


def tabulate(surrogate: Surrogate, n: int, most: int, seed: int = 0) -> SurrogateTable:
    """Tabulate G at all 2ⁿ − 2 coalitions if these are at most ``most`` (and n ≤ 16), else at ``most`` random ones."""
    coalitions, design = tabulated(n, most, seed)
    (full,) = surrogate(np.ones((1, n), dtype=np.bool_))
    return SurrogateTable(coalitions, surrogate(coalitions), float(full), design)


@lru_cache(maxsize=16)  # asked for often, and expensive to draw
def tabulated(n: int, most: int, seed: int = 0) -> tuple[BoolArray, str]:
    """Return the coalitions of such a table, (m, n), read-only, and the name of their design."""
    everything = n <= LARGEST and 2**n - 2 <= most
    design = "exhaustive" if everything else "uniform"
    coalitions = make_design(design, seed).draw(n, 0, 2**n - 2 if everything else most)
    coalitions.flags.writeable = False
    return coalitions, design
