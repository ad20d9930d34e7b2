"""What an estimate returns."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Credits:
    """One credit a contributor, in the units of the property, with its interval.

    ``values``, ``low``, ``high``, ``standard_error`` are (n,). ``standard_error`` is the root of the expected
    squared error: sampling variance plus, where the method shrinks, the second moment of its bias.
    ``evaluations`` counts the coalitions used, endpoints apart; ``empty`` and ``full`` are F(∅) and F(N).
    A low standard error says that more coalitions would change little, for this base model, this retraining
    and these initial noises; it says nothing about others.
    """

    values: FloatArray
    low: FloatArray
    high: FloatArray
    standard_error: FloatArray
    method: str
    evaluations: int
    confidence: float
    empty: float
    full: float
    diagnostics: dict[str, float]

    @property
    def average(self) -> float:
        """(F(N) − F(∅)) / n: what each would get if all were equal."""
        return (self.full - self.empty) / len(self.values)

    @property
    def shares(self) -> FloatArray:
        """(n,): credits as parts of F(N) − F(∅); they sum to 1. NaN where there is nothing to share."""
        total = self.full - self.empty
        return self.values / total if total != 0 else np.full_like(self.values, np.nan)

    def rank(self, higher_is_better: bool = True) -> NDArray[np.intp]:
        """(n,): 1 for the most helpful contributor; equal credits share the better rank."""
        return rankdata(-self.values if higher_is_better else self.values, method="min").astype(np.intp)
