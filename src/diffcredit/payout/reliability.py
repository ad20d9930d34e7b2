"""How much of a pool may follow merit: r from how sure the credits are and how well they were tested.

    r = ρ̂² · v²,   at most the policy's r_at_most

ρ̂² is the part of the variance of the true credits that the estimated ones show (their predicted correlation, squared);
v is the rank correlation of the credits' predictions with retrained models, as a part of what could be reached at all.
Both squares are parts of a variance that is explained. Noisy attribution favours a fixed rule: where credits were never
tested, or may have failed their test, r is 0 and all of the pool is fixed.
"""

from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal

import numpy as np

from diffcredit.credit import Credits
from diffcredit.credit.verdicts import Tested
from diffcredit.study.policy import PolicySection
from diffcredit.util.decimals import exactly

DIGITS = Decimal("0.001")  # to which r is rounded down, so that the number on a statement is the one that was used


@dataclass(frozen=True)
class Followed:
    """How much of the pool follows merit, ``r``, and why in a sentence. ``signal`` and ``tested`` are ρ̂² and v²; None
    where the policy states r."""

    r: Decimal
    words: str
    signal: float | None = None
    tested: float | None = None


@exactly
def followed(policy: PolicySection, credits: Credits, tested: Tested | None) -> Followed:
    """Return how much of the pool follows merit by a policy, for credits that were ``tested`` (None: never)."""
    if isinstance(policy.r, Decimal):
        return Followed(policy.r, "The policy sets this part.")
    signal = signal_part(credits)
    if tested is None:
        return Followed(Decimal(0), "The credits were never tested, so nothing follows them.", signal, 0.0)
    ceiling = tested.ceiling if tested.ceiling is not None and tested.ceiling > 0 else 1.0
    part = min(max(tested.score / ceiling, 0.0), 1.0) ** 2
    if not tested.low > 0:
        return Followed(Decimal(0), "The credits' test does not show that they are right.", signal, part)
    reliable = Decimal(signal * part).quantize(DIGITS, ROUND_DOWN)
    words = (
        f"{signal:.2f} × {part:.2f}: the estimate shows {signal:.0%} of the differences between contributors, and the "
        f"score of the credits' test, {part**0.5:.0%} of the best possible one, counts by its square"
    )
    if reliable <= policy.r_at_most:
        return Followed(reliable, f"{words}.", signal, part)
    return Followed(policy.r_at_most, f"{words}, at most {policy.r_at_most} by the policy.", signal, part)


def signal_part(credits: Credits) -> float:
    """Return ρ̂², the part of the variance of the true credits that the estimate shows, from 0 to 1.

    The default method knows it. Otherwise V, the mean squared error of the credits beside their average, is compared
    with their variance s²: ρ̂² = s²/(s² + V) if the method shrinks, and 1 − V/s² if it does not.
    """
    if "predicted_correlation" in credits.diagnostics:
        return min(max(credits.diagnostics["predicted_correlation"], 0.0), 1.0) ** 2
    errors = float(((credits.influence[:, :-2] ** 2).sum(axis=1) + credits.bias**2).mean())
    spread = float(credits.values.var())
    if not np.isfinite(errors) or spread == 0:
        return 0.0
    return spread / (spread + errors) if credits.bias.any() else max(0.0, 1 - errors / spread)
