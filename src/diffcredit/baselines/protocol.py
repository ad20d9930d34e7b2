"""What a baseline is: a function from what a study has before any retraining to credits."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.features.extractors import Extractors
from diffcredit.properties import Images

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What baselines look at: the contributions, the base model's ``generated`` images (g, h, w, 3), the
    fitted property that contributors are credited for (None: not given), a seed for what is random, and what features
    are extracted with."""

    contributions: Contributions
    generated: Images
    prop: Any
    seed: int
    extractors: Extractors = field(default_factory=Extractors)


Baseline = Callable[[Evidence], FloatArray]
"""(n,) credits from evidence; a higher one stands for more of the property."""
