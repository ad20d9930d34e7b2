"""Checks of what callers pass."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray


def float_array(name: str, given: ArrayLike) -> FloatArray:
    """Return ``given`` as floats of any shape, NaN where it is masked. Raise UserError if it holds no real numbers."""
    try:
        if np.iscomplexobj(given):
            raise TypeError("complex numbers")
        if np.ma.isMaskedArray(given):
            return np.ma.asarray(given, dtype=np.float64).filled(np.nan)
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: {error}; expected real numbers") from None


def contributor_names(names: Sequence[str] | None, n: int) -> tuple[str, ...]:
    """Return ``names`` as n different texts; "0", "1", … when None. Raise UserError if they are not that."""
    if names is None:
        return tuple(map(str, range(n)))
    found = (names,) if isinstance(names, str) else tuple(map(str, names))
    if len(found) != n:
        raise UserError(f"names: {len(found)} given; expected {n}, one per contributor")
    if len(set(found)) < n:
        repeated = next(name for name in found if found.count(name) > 1)
        raise UserError(f"names: {repeated!r} is given {found.count(repeated)} times; each contributor needs its own")
    return found
