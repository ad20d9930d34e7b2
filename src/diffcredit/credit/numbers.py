"""Numbers as callers give them."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.errors import UserError


def read_numbers(name: str, given: ArrayLike) -> NDArray[np.float64]:
    """``given`` as an array of any shape, NaN where a mask hides it. Raises UserError where it holds no numbers."""
    try:
        if np.iscomplexobj(given):
            raise TypeError("complex numbers")
        if np.ma.isMaskedArray(given):
            return np.ma.asarray(given, dtype=np.float64).filled(np.nan)
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: {error}; expected real numbers") from None
