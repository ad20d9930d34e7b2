"""The designs by name."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from diffcredit.coalitions.design import Design
from diffcredit.coalitions.exhaustive import Exhaustive
from diffcredit.coalitions.kernel import Kernel
from diffcredit.coalitions.uniform import Uniform
from diffcredit.errors import UserError

DESIGNS: dict[str, Callable[[int], Design]] = {"exhaustive": Exhaustive, "kernel": Kernel, "uniform": Uniform}


def make_design(name: str, seed: int = 0) -> Design:
    """The design called ``name``; the same seed gives the same coalitions on every machine."""
    if name not in DESIGNS:
        raise UserError(f"design {name!r}: unknown; choose one of {', '.join(DESIGNS)}")
    # int: derived seeds depend on the type, and a numpy integer means the same seed.
    return DESIGNS[name](int(seed))


def size_probabilities(name: str, n: int) -> NDArray[np.float64]:
    """(n−1,): how probable sizes 1, …, n−1 are under the design called ``name``."""
    return make_design(name).size_probabilities(n)
