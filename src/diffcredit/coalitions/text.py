"""A coalition as text: one character per contributor, "1" for a member."""

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray


def encode(coalition: ArrayLike) -> str:
    """Return (n,) booleans as "0101…", n characters in the order of the contributors."""
    row = np.asarray(coalition)
    if row.ndim != 1 or not np.isin(row, (0, 1)).all():
        raise UserError(f"coalition of shape {row.shape}: expected one vector of booleans")
    return "".join("1" if member else "0" for member in row)


def decode(text: str) -> BoolArray:
    """Return (n,) booleans, the inverse of `encode`."""
    if not text or set(text) - {"0", "1"}:
        raise UserError(f"coalition {text!r}: expected one 0 or 1 per contributor")
    return np.array([character == "1" for character in text], dtype=np.bool_)
