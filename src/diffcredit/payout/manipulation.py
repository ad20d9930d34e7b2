"""What a manipulation would change: amounts by the fitted game before and after it.

    >>> effect = what_if(basis, Decimal("10000.00"), "split=Ada:3")    # doctest: +SKIP
    >>> print(effect)                                                   # doctest: +SKIP

Nothing is trained. The intervals come from the credits' errors and hold as far as the fitted game does
(:mod:`.fitted_game`): they do not cover what the game cannot know. The part of the pool that follows merit stays the
same, and who is cut off is decided anew.
"""

from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from diffcredit.payout.basis import Basis
from diffcredit.payout.certainty import Paying, draw_errors
from diffcredit.payout.changes import Change, holdings, read_change
from diffcredit.payout.fitted_game import FittedGame, shifted
from diffcredit.payout.merit import cut_off, standing
from diffcredit.util.arrays import FloatArray
from diffcredit.util.decimals import exactly

RESTS_ON = (
    "Estimated from the game fitted to the study's evaluations, without training: everybody's images add a fixed "
    "amount, beside an effect of how many people there are; a part of a portfolio adds that part of the amount, and a "
    "copy adds nothing. The intervals cover the credits' errors, not those of the fitted game."
)
SHOWN = 3  # others whose amounts a departure changes most


@dataclass(frozen=True)
class Amounts:
    """What one contributor would get ``before`` and ``after``, under all names together; ``gain`` is the difference,
    ``low`` to ``high`` its interval, and ``fixed`` what of it the fixed rule gives."""

    name: str
    before: Decimal
    after: Decimal
    gain: Decimal
    low: Decimal
    high: Decimal
    fixed: Decimal


@dataclass(frozen=True)
class Effect:
    """What a ``change``, as it was asked for, would do to the amounts of those concerned, the one who does it first.
    ``full`` and ``changed`` are the property of everybody's model before and after."""

    change: str
    kind: str
    parts: int
    amounts: tuple[Amounts, ...]
    currency: str
    confidence: float
    full: float
    changed: float

    def __str__(self) -> str:
        who, *others = self.amounts
        if self.kind == "split":
            said = [f"{self.parts} names would get {_instead(who)} {self.currency}: {self._gain(who)}."]
        elif self.kind == "copy":
            other = others[0]
            said = [
                f"{who.name} would get {_instead(who)} {self.currency}: {self._gain(who)}.",
                f"{other.name} would get {_instead(other)}: {self._gain(other)}.",
            ]
        else:
            gains = ", ".join(f"{each.name} {each.gain:+,}" for each in others)
            said = [
                f"The {who.before:,} {self.currency} of {who.name} would go to others, above all: {gains}.",
                f"The property of everybody's model would be {self.changed:.6g} instead of {self.full:.6g}.",
            ]
        return " ".join([f"{self.change}:", *said])

    def _gain(self, each: Amounts) -> str:
        return (
            f"{each.gain:+,} ({100 * self.confidence:g} % interval {each.low:+,} to {each.high:+,}), of which the fixed rule "
            f"gives {each.fixed:+,}"
        )


def _instead(each: Amounts) -> str:
    return f"{each.after:,} instead of {each.before:,}"


@exactly
def what_if(basis: Basis, pool: Decimal, change: str) -> Effect:
    """Return what a ``change`` (:mod:`.changes`) would do to a payout of ``pool`` on this ``basis``."""
    credits, policy, contributors = basis.credits, basis.policy, basis.contributors
    asked = read_change(change, contributors.names)
    images = [basis.data["images"][name] for name in credits.names]
    held = holdings(asked, contributors, images, basis.data.get("lots", {}).get("lot"))
    moved = shifted(FittedGame.of(credits), held)
    cut = cut_off(standing(moved.credits(credits), held.contributors, basis.sign), policy)
    terms = policy, basis.sign, float(basis.followed.r), float(pool)
    before = Paying(contributors, *terms, ~basis.cut, credits.rounding)
    after = Paying(held.contributors, *terms, ~cut, credits.rounding)
    people = np.array(held.person) == np.arange(len(contributors.names))[:, None]  # (n, k): whose account each is
    drawn = credits.values + draw_errors(credits, np.random.Generator(np.random.PCG64(0)))
    values = np.vstack([credits.values, drawn])  # the estimate first
    was, will = before.amounts(values), after.amounts(moved.values(values)) @ people.T
    tail = (1 - credits.confidence) / 2
    low, high = np.quantile((will - was)[1:], [tail, 1 - tail], axis=0)
    by_rule = people @ _by_rule(after) - _by_rule(before)

    def amounts(i: int) -> Amounts:
        first, then = (_coins(part[0, i], policy.rounding) for part in (was, will))
        gain = then - first
        least, most, fixed = (_coins(part[i], policy.rounding) for part in (low, high, by_rule))
        return Amounts(contributors.names[i], first, then, gain, min(gain, least), max(gain, most), fixed)

    return Effect(
        change=change,
        kind=asked.kind,
        parts=asked.parts,
        amounts=tuple(amounts(i) for i in _concerned(asked, (will - was)[0])),
        currency=policy.currency,
        confidence=credits.confidence,
        full=credits.full,
        changed=moved.full,
    )


def _by_rule(paying: Paying) -> FloatArray:
    """Return (n,): the fixed part, before floors and caps."""
    found = np.zeros(len(paying.kept))
    found[paying.kept] = (1 - paying.r) * paying.pool * paying.fixed / paying.fixed.sum()
    return found


def _concerned(change: Change, gains: FloatArray) -> list[int]:
    """Return who is named in a change, then, if somebody leaves, who gains most."""
    named = [change.who] if change.other is None else [change.who, change.other]
    most = [i for i in np.argsort(-gains, kind="stable").tolist() if i != change.who]
    return named + (most[:SHOWN] if change.kind == "leave" else [])


def _coins(amount: float, rounding: Decimal) -> Decimal:
    """Return an estimated amount, of either sign, as the nearest whole number of coins."""
    return round(Decimal(float(amount)) / rounding) * rounding
