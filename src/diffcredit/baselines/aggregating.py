"""From scores of training images to credits of contributors."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.baselines.answers import one_number_each
from diffcredit.baselines.protocol import How
from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray

_WAYS: dict[str, Callable[[FloatArray], float]] = {"sum": np.sum, "mean": np.mean, "max": np.max}


def aggregate(scores: ArrayLike, contributions: Contributions, how: How) -> FloatArray:
    """(n,): the sum, mean or max of each contributor's images' ``scores`` (m,).

    Influence-like scores add up, so their sum is the custom; similarities do not, so their mean or max is.
    """
    if how not in _WAYS:
        raise UserError(f"how: {how!r}; accepted: {', '.join(_WAYS)}")
    s = one_number_each(scores, contributions.names, "scores")
    if (contributions.counts == 0).any():
        nobody = contributions.contributors[int(np.argmin(contributions.counts))]
        raise UserError(f"contributor {nobody!r} gave no training image; credits need at least one of everybody")
    return np.array([_WAYS[how](s[contributions.owner == i]) for i in range(contributions.n)], dtype=np.float64)
