"""Every design by a name that can be made, and what tests ask of their rows."""

from itertools import combinations

import numpy as np

from diffcredit.coalitions import DESIGNS

NAMES = [name.replace("alpha", "0.5") for name in DESIGNS]
FINITE = {"exhaustive": lambda n: 2**n - 2, "leave-one-out": lambda n: n, "add-one-in": lambda n: n}
ENDLESS = [name for name in NAMES if name not in FINITE]
PAIRED = ["kernel-paired", "leverage"]
WITHOUT_DUPLICATES = ["half", "leverage", "mix", "subset(0.5)", "uniform"]


def most(name, n, count):
    """``count`` rows, or as many as the design has."""
    return min(FINITE[name](n), count) if name in FINITE else count


def keys(rows):
    return [row.tobytes() for row in rows]


def all_of_size(n, size):
    return np.array([np.isin(np.arange(n), members) for members in combinations(range(n), size)])
