"""How often labels occur in the bootstrap's resamples."""

import numpy as np
from numpy.typing import NDArray

from diffcredit.properties.bootstrap import resamples


def resampled_counts(labels: NDArray[np.int64], kinds: int) -> NDArray[np.int64]:
    """(200, kinds): how many images of each resample have each label, of the images' labels (m,) in 0..kinds−1."""
    drawn = labels[resamples(len(labels))]
    numbered = drawn + kinds * np.arange(len(drawn))[:, None]  # each resample has labels of its own
    return np.bincount(numbered.ravel(), minlength=kinds * len(drawn)).reshape(len(drawn), kinds)
