"""What a surrogate is."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from diffcredit.coalitions import BoolArray


class Surrogate(Protocol):
    """A cheap stand-in G for F, known for every coalition but perhaps the empty one.

    φ(F) = b·φ(G) + φ(F − b·G) for any b: G's credits cost arithmetic alone, and evaluations are spent on what
    G misses. G(∅) shifts all of φ(G) by the same amount, so that differences between contributors never need
    it.
    """

    def __call__(self, coalitions: BoolArray) -> NDArray[np.float64]:
        """G of each row: (m, n) booleans → (m,), the same whenever it is asked. Raises a UserError for a
        coalition that has no value."""
        ...
