"""Vectors of which only the direction counts."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def unit_rows(vectors: ArrayLike) -> NDArray[np.float64]:
    """(m, d): each row divided by its Euclidean length; a row of zeros stays one."""
    rows: NDArray[Any] = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)
