"""A surrogate's values where its own credits need them."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from diffcredit.coalitions import make_design
from diffcredit.coalitions.exhaustive import LARGEST
from diffcredit.surrogates.base import Surrogate
from diffcredit.util.arrays import BoolArray


@dataclass(frozen=True, eq=False)
class SurrogateTable:
    """What an estimate of G's credits takes but G(∅), which the caller chooses: it sets their level alone.

    coalitions (m, n) without the empty and the full one, values (m,), ``full`` = G(N), and the design they
    come from: ``exhaustive`` when they are all there are, so that the credits are exact.
    """

    coalitions: BoolArray
    values: NDArray[np.float64]
    full: float
    size_distribution: str


def tabulate(surrogate: Surrogate, n: int, most: int, seed: int = 0) -> SurrogateTable:
    """G of all 2ⁿ − 2 coalitions where these are ``most`` at most (and n ≤ 16), else of ``most`` with uniform
    sizes."""
    coalitions, design = tabulated(n, most, seed)
    (full,) = surrogate(np.ones((1, n), dtype=np.bool_))
    return SurrogateTable(coalitions, surrogate(coalitions), float(full), design)


@lru_cache(maxsize=16)  # whether all of them are measured is asked often, and spreading them takes its time
def tabulated(n: int, most: int, seed: int = 0) -> tuple[BoolArray, str]:
    """The coalitions of such a table, (m, n), not to be written to, and the name of their design."""
    everything = n <= LARGEST and 2**n - 2 <= most
    design = "exhaustive" if everything else "uniform"
    coalitions = make_design(design, seed).draw(n, 0, 2**n - 2 if everything else most)
    coalitions.flags.writeable = False
    return coalitions, design
