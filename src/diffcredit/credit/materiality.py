"""Whether a difference between contributors is large enough to matter, which is another question than whether it is
sure: with enough evaluations the smallest difference is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from diffcredit.util.arrays import BoolArray

if TYPE_CHECKING:
    from diffcredit.credit.credits import Credits


@dataclass(frozen=True)
class Yardstick:
    """The help from which a contributor matters, in the property's unit (NaN: unknown), and where it comes from."""

    value: float
    words: str


def seed_yardstick(credits: "Credits") -> Yardstick:
    """Return the spread of F(N) between training seeds (n − 1 in the denominator); NaN with a single replicate.

    Raise F(N)'s replicates to know it better: from three it is right within a factor of two or so.
    """
    full = credits.table.full
    spread = float(full.std(ddof=1)) if len(full) > 1 else np.nan
    return Yardstick(spread, "the spread of everybody's model between training seeds")


def stated_yardstick(value: float) -> Yardstick:
    """Return the yardstick that a study states in ``matters``."""
    return Yardstick(float(value), "what the study says matters")


def matters(credits: "Credits", yardstick: Yardstick) -> BoolArray:
    """Return (n,): whether each contributor's help, of either sign, is larger than the yardstick."""
    return np.abs(credits.help()) > yardstick.value
