"""The designs by name."""

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from diffcredit.coalitions.add_one_in import AddOneIn
from diffcredit.coalitions.design import Design, as_integer
from diffcredit.coalitions.exhaustive import Exhaustive
from diffcredit.coalitions.half import Half
from diffcredit.coalitions.kernel import Kernel
from diffcredit.coalitions.kernel_paired import KernelPaired
from diffcredit.coalitions.leave_one_out import LeaveOneOut
from diffcredit.coalitions.leverage import Leverage
from diffcredit.coalitions.mix import Mix
from diffcredit.coalitions.permutation import Permutation
from diffcredit.coalitions.subset import Subset
from diffcredit.coalitions.uniform import Uniform
from diffcredit.errors import UserError

# Names as errors and docs list them. A design "family(alpha)" is asked for with a number between 0 and 1 for alpha
# and is made from that number and the seed, all others from the seed alone.
DESIGNS: dict[str, Callable[..., Design]] = {
    "add-one-in": AddOneIn,
    "exhaustive": Exhaustive,
    "half": Half,
    "kernel": Kernel,
    "kernel-paired": KernelPaired,
    "leave-one-out": LeaveOneOut,
    "leverage": Leverage,
    "mix": Mix,
    "permutation": Permutation,
    "subset(alpha)": Subset,
    "uniform": Uniform,
}


def make_design(name: str, seed: int = 0) -> Design:
    """The design called ``name``, such as "uniform" or "subset(0.5)"; the same seed gives the same coalitions on
    every machine."""
    parametrised = re.fullmatch(r"(.*)\((.*)\)", str(name))
    listed = f"{parametrised[1]}(alpha)" if parametrised else str(name)
    if listed not in DESIGNS:
        raise UserError(f"design {name!r}: unknown; choose one of {', '.join(DESIGNS)} (alpha between 0 and 1)")
    arguments = [_alpha(name, parametrised[2])] if parametrised else []
    return DESIGNS[listed](*arguments, as_integer("seed", seed))


def size_probabilities(name: str, n: int) -> NDArray[np.float64]:
    """(n−1,): how probable sizes 1, …, n−1 are under the design called ``name``."""
    return make_design(name).size_probabilities(n)


def _alpha(name: str, text: str) -> float:
    try:
        alpha = float(text)
    except ValueError:
        alpha = float("nan")
    if not 0 < alpha < 1:
        raise UserError(f"design {name!r}: alpha must be a number between 0 and 1, such as 0.5")
    return alpha
