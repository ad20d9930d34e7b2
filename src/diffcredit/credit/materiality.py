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
    """Return the spread of F(N) between training seeds, √((σ² + Σ_k (F_k − F̄)²)/r); NaN where nothing shows it.

    A spread of r = 3 replicates alone is below half of the true one in every fifth study, and then differences seem to
    matter that do not. So the noise σ² of any evaluation, as the estimator found it, counts as one more seed.
    """
    full = credits.table.full
    squares = float(((full - full.mean()) ** 2).sum())
    return Yardstick(
        float(np.sqrt((_noise(credits) ** 2 + squares) / len(full))),
        "the spread of everybody's model between training seeds",
    )


def _noise(credits: "Credits") -> float:
    """Return σ, the deviation of one evaluation; of a mix at most this, since its parts' noises may be correlated."""
    if credits.parts:
        return sum(abs(weight) * _noise(part) for weight, part in credits.parts)
    noise, full = credits.diagnostics.get("sigma", np.inf), credits.table.full
    if np.isfinite(noise):
        return noise
    return float(full.std(ddof=1)) if len(full) > 1 else np.nan


def stated_yardstick(value: float) -> Yardstick:
    """Return the yardstick that a study states in ``matters``."""
    return Yardstick(float(value), "what the study says matters")


def matters(credits: "Credits", yardstick: Yardstick) -> BoolArray:
    """Return (n,): whether each contributor's help, of either sign, is larger than the yardstick."""
    return np.abs(credits.help()) > yardstick.value + credits.rounding
