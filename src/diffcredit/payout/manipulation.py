"""What a manipulation would change: amounts by the fitted game before and after it.

    >>> effect = what_if(basis, Decimal("10000.00"), "split=Ada:3")    # doctest: +SKIP
    >>> print(effect)                                                   # doctest: +SKIP

Nothing is trained. The intervals come from the credits' errors and hold as far as the fitted game does
(:mod:`.fitted_game`): they do not cover what the game cannot know. The part of the pool that follows merit stays the
same, and who is cut off is decided anew.
"""

from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from diffcredit.credit import Credits
from diffcredit.errors import located
from diffcredit.payout.basis import Basis
from diffcredit.payout.certainty import Paying, draw_errors
from diffcredit.payout.changes import Change, holdings, read_change
from diffcredit.payout.fitted_game import FittedGame, shifted
from diffcredit.payout.merit import Contributors, cut_off, standing
from diffcredit.payout.paying import divide_pool
from diffcredit.util.arrays import FloatArray
from diffcredit.util.decimals import exactly
from diffcredit.util.sanitize import shortened

RESTS_ON = (
    "Estimated from the game fitted to the study's evaluations, without training: everybody's images add a fixed "
    "amount, beside an effect of how many people there are; a part of a portfolio adds that part of the amount, and a "
    "copy adds nothing. Where somebody's own images repeat each other, a split gains more than this. The intervals "
    "cover the credits' errors, not those of the fitted game."
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
    ``full`` and ``changed`` are what is paid for, called ``title``, of everybody's model before and after."""

    change: str
    kind: str
    parts: int
    amounts: tuple[Amounts, ...]
    title: str
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
                f"{self.title} of everybody's model would be {self.changed:.6g} instead of {self.full:.6g}.",
            ]
        return " ".join([f"{self.change}:", *said])

    def _gain(self, each: Amounts) -> str:
        interval = f"{100 * self.confidence:g} % interval {each.low:+,} to {each.high:+,}"
        return f"{each.gain:+,} ({interval}); the fixed rule gives {each.fixed:+,} of it"


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
    changed = _changed(basis, held.contributors, moved.credits(credits))
    people = np.array(held.person) == np.arange(len(contributors.names))[:, None]  # (n, k): whose account each is
    with located(f"--what-if: {shortened(change)}"):
        coins = np.array(divide_pool(basis, pool).amounts), people @ np.array(divide_pool(changed, pool).amounts)
    before, after = _paying(basis, pool), _paying(changed, pool)
    drawn = credits.values + draw_errors(credits, np.random.Generator(np.random.PCG64(0)))
    gains = after.amounts(moved.values(drawn)) @ people.T - before.amounts(drawn)
    tail = (1 - credits.confidence) / 2
    low, high = np.quantile(gains, [tail, 1 - tail], axis=0)
    by_rule = people @ _by_rule(after) - _by_rule(before)

    def amounts(i: int) -> Amounts:
        first, then = (int(part[i]) * policy.rounding for part in coins)
        least, most, fixed = (_coins(part[i], policy.rounding) for part in (low, high, by_rule))
        gain = then - first
        return Amounts(contributors.names[i], first, then, gain, min(gain, least), max(gain, most), fixed)

    return Effect(
        change=change,
        kind=asked.kind,
        parts=asked.parts,
        amounts=tuple(amounts(i) for i in _concerned(asked, coins[1] - coins[0])),
        title=basis.title,
        currency=policy.currency,
        confidence=credits.confidence,
        full=credits.full,
        changed=moved.full,
    )


def _changed(basis: Basis, contributors: Contributors, credits: Credits) -> Basis:
    """Return the basis with other accounts and their credits."""
    found = standing(credits, contributors, basis.sign)
    return replace(basis, contributors=contributors, credits=credits, standing=found, cut=cut_off(found, basis.policy))


def _paying(basis: Basis, pool: Decimal) -> Paying:
    r, rounding = float(basis.followed.r), basis.credits.rounding
    return Paying(basis.contributors, basis.policy, basis.sign, r, float(pool), ~basis.cut, rounding)


def _by_rule(paying: Paying) -> FloatArray:
    """Return (n,): the fixed part, before floors and caps."""
    found = np.zeros(len(paying.kept))
    found[paying.kept] = (1 - paying.r) * paying.pool * paying.fixed / paying.fixed.sum()
    return found


def _concerned(change: Change, gains: NDArray[np.int_]) -> list[int]:
    """Return who is named in a change, then, if somebody leaves, who gains most."""
    named = [change.who] if change.other is None else [change.who, change.other]
    most = [i for i in np.argsort(-gains, kind="stable").tolist() if i != change.who]
    return named + (most[:SHOWN] if change.kind == "leave" else [])


def _coins(amount: float, rounding: Decimal) -> Decimal:
    """Return an estimated amount, of either sign, as the nearest whole number of coins."""
    return round(Decimal(float(amount)) / rounding) * rounding
