"""The designs by name."""

import re
from collections.abc import Callable

from diffcredit.coalitions.design import Design, as_integer
from diffcredit.coalitions.finite import AddOneIn, Exhaustive, LeaveOneOut
from diffcredit.coalitions.half import Half, Mix
from diffcredit.coalitions.kernel import Kernel, KernelPaired
from diffcredit.coalitions.leverage import Leverage
from diffcredit.coalitions.permutation import Permutation
from diffcredit.coalitions.subset import Subset
from diffcredit.coalitions.uniform import Uniform
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray

# Names as errors and docs list them. "family(alpha)" stands for a number between 0 and 1 in place of alpha; such a
# design is made from that number and the seed, all others from the seed alone.
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
    """Return the design ``name``, such as "uniform" or "subset(0.5)". The same seed gives the same coalitions on every
    machine. Raise UserError if there is no such design."""
    parametrised = re.fullmatch(r"(.*)\((.*)\)", str(name))
    listed = f"{parametrised[1]}(alpha)" if parametrised else str(name)
    if listed not in DESIGNS:
        raise UserError(f"design {name!r}: unknown; choose one of {', '.join(DESIGNS)} (alpha between 0 and 1)")
    arguments = [_alpha(name, parametrised[2])] if parametrised else []
    return DESIGNS[listed](*arguments, as_integer("seed", seed))


def size_probabilities(name: str, n: int) -> FloatArray:
    """Return (n−1,): the probabilities of the sizes 1, …, n−1 under the design ``name``."""
    return make_design(name).size_probabilities(n)


def _alpha(name: str, text: str) -> float:
    try:
        alpha = float(text)
    except ValueError:
        alpha = float("nan")
    if not 0 < alpha < 1:
        raise UserError(f"design {name!r}: alpha must be a number between 0 and 1, such as 0.5")
    return alpha
