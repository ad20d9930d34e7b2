"""Vectors whose direction alone counts."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def unit_rows(vectors: ArrayLike) -> NDArray[np.float64]:
    """Divide each row of vectors (m, d) by its Euclidean length; a row of zeros stays."""
    rows: NDArray[Any] = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)
