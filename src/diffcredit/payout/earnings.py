"""What contributors earn: a fixed part and a merit part of one pool, within bounds, in whole coins.

>>> from decimal import Decimal
>>> from fractions import Fraction
>>> earned = earnings(1000, Decimal("0.4"), [1, 1], [Fraction(3), Fraction(1)], ["Ada", "Ben"])
>>> earned.fixed, earned.merit, earned.amounts
((300, 300), (300, 100), (600, 400))

Merits come from floating-point numbers, whose last digits differ between machines. :func:`exact` rounds them to eleven
digits first, so that the same credits give the same coins everywhere. A pool of up to 10¹¹ coins is divided as finely.

The two parts are rounded one after the other. A coin that is left over in the fixed part goes to the larger merit, and
one in the merit part to whom the fixed part gave less: so equal claims differ by a coin at most, and of two with equal
fixed weights the one with the larger merit never earns less.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from diffcredit.errors import UserError
from diffcredit.payout.dividing import divide, within_bounds
from diffcredit.util.arrays import FloatArray

DIGITS = 11  # of the largest merit


@dataclass(frozen=True)
class Earnings:
    """Coins by contributor: the ``fixed`` and the ``merit`` part, and the ``amounts`` within bounds, which sum to the
    pool."""

    fixed: tuple[int, ...]
    merit: tuple[int, ...]
    amounts: tuple[int, ...]


def exact(merits: FloatArray) -> list[Fraction]:
    """Return merits as fractions of eleven digits, counted from the largest."""
    largest = float(merits.max(initial=0.0))
    if largest <= 0:
        return [Fraction(0)] * len(merits)
    return [Fraction(round(float(merit) / largest * 10**DIGITS), 10**DIGITS) for merit in merits]


def earnings(
    pool: int,
    r: Decimal,
    weights: Sequence[int],
    merits: Sequence[Fraction],
    names: Sequence[str],
    *,
    floor: int = 0,
    cap: int | None = None,
    cut: Sequence[bool] = (),
) -> Earnings:
    """Divide ``pool`` coins: the part ``r`` in proportion to ``merits``, the rest to the fixed ``weights``.

    Everything goes by the weights where nobody has merit. ``floor`` and ``cap`` bound each amount. Who is ``cut`` gets
    nothing, not even the floor. Raises UserError where the pool cannot be divided so, or nobody has weight.
    """
    paid = [i for i in range(len(names)) if not (cut and cut[i])]
    if not paid:
        raise UserError("negatives: everybody surely makes the model worse than the reference, so nobody can be paid")
    weights, merits = [weights[i] for i in paid], [merits[i] for i in paid]
    if not any(weights):
        raise UserError("fixed: nobody has a whole lot, by which the fixed part would be divided")
    if len(paid) * floor > pool:
        raise UserError(f"floor: {len(paid)} contributors times the floor is more than the pool")
    if cap is not None and len(paid) * cap < pool:
        raise UserError(f"cap: {len(paid)} contributors times the cap is less than the pool, which must be used up")
    chosen = [names[i] for i in paid]
    by_merit = round(Fraction(pool) * Fraction(r)) if any(merits) else 0
    fixed = divide(pool - by_merit, weights, chosen, [-merit for merit in merits])
    quotas = [Fraction(pool - by_merit) * weight / sum(weights) for weight in weights]
    given = [part - quota for part, quota in zip(fixed, quotas, strict=True)]
    merit = divide(by_merit, merits, chosen, given) if by_merit else [0] * len(paid)
    wanted = [a + b for a, b in zip(fixed, merit, strict=True)]
    within = min(wanted) >= floor and (cap is None or max(wanted) <= cap)
    amounts = wanted if within else within_bounds(pool, wanted, chosen, floor=floor, cap=cap)
    return Earnings(*(_at(paid, part, len(names)) for part in (fixed, merit, amounts)))


def _at(places: Sequence[int], values: Sequence[int], n: int) -> tuple[int, ...]:
    """Return (n,): ``values`` at ``places``, and 0 elsewhere."""
    found = dict(zip(places, values, strict=True))
    return tuple(found.get(i, 0) for i in range(n))
