"""The credits of a game that is known where it is asked, such as a surrogate, up to their level."""

import numpy as np
from numpy.typing import NDArray

from diffcredit.credit.credits import Credits
from diffcredit.credit.estimate import estimate


def own_credits(
    coalitions: NDArray[np.bool_], values: NDArray[np.float64], full: float, size_distribution: str
) -> Credits:
    """The Shapley values of G from its values (m,) at ``coalitions`` (m, n), the empty and the full one left out, and
    ``full`` = G(N): exact where these are all there are (``exhaustive``), else estimated without shrinkage. G(∅), which
    sets the level that all share, is taken to be 0."""
    return estimate(
        coalitions,
        values,
        empty=0.0,
        full=full,
        method="exact" if size_distribution == "exhaustive" else "unshrunk",
        size_distribution=size_distribution,
    )
