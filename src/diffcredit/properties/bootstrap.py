"""How much a property would change with other generated images: the bootstrap."""

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 200  # a standard error is then known to 5 %


def resamples(images: int) -> NDArray[np.int64]:
    """(200, images): which images each resample holds, drawn with replacement; the same on every machine."""
    uniform = np.random.Generator(np.random.PCG64(0)).random((RESAMPLES, images))
    return (uniform * images).astype(np.int64)
