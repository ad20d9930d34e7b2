"""Scores of training images to credits of contributors."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.baselines.base import How
from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray

_WAYS: dict[str, Callable[[FloatArray], float]] = {"sum": np.sum, "mean": np.mean, "max": np.max}


def aggregate(scores: ArrayLike, contributions: Contributions, how: How) -> FloatArray:
    """Return (n,): the sum, mean or max of the ``scores`` (m,) of each contributor's images.

    Influence-like scores add up, so that their sum is usual. Similarities do not; their mean or max is usual.
    """
    if how not in _WAYS:
        raise UserError(f"how: {how!r}; accepted: {', '.join(_WAYS)}")
    s = one_number_each(scores, contributions.names, "scores")
    if (contributions.counts == 0).any():
        nobody = contributions.contributors[int(np.argmin(contributions.counts))]
        raise UserError(f"contributor {nobody!r} gave no training image; credits need at least one of everybody")
    return np.array([_WAYS[how](s[contributions.owner == i]) for i in range(contributions.n)], dtype=np.float64)


def one_number_each(values: ArrayLike, names: Sequence[str], what: str) -> FloatArray:
    """Return ``values`` as float64 after checking that each of the ``names`` has one; ``what`` starts every error."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what}: not numbers ({error}); an array of numbers is accepted") from None
    if numbers.shape != (len(names),):
        raise UserError(f"{what}: shape {numbers.shape}; one number for each of {len(names)} is accepted")
    if not np.isfinite(numbers).all():
        worst = names[int(np.argmin(np.isfinite(numbers)))]
        raise UserError(f"{what}: that of {worst} is not a finite number")
    return numbers
