"""Dividing money exactly: whole coins, by weights, within bounds.

Everything is in whole numbers of the smallest coin and in fractions, so that sums are exact and every machine finds the
same amounts:

>>> from fractions import Fraction
>>> divide(100, [Fraction(1), Fraction(1), Fraction(1)], ["Ada", "Ben", "Cy"])
[34, 33, 33]
>>> within_bounds(100, [60, 30, 10], ["Ada", "Ben", "Cy"], floor=20, cap=50)
[50, 30, 20]

Who has a larger weight never gets less (`divide` by largest remainders, Hamilton's method), and equal weights get
amounts that differ by a coin at most; the coin goes to the name that sorts first.
"""

from collections.abc import Sequence
from fractions import Fraction


def divide(
    total: int, weights: Sequence[Fraction | int], names: Sequence[str], last: Sequence[Fraction | int] | None = None
) -> list[int]:
    """Return ``total`` coins divided in proportion to ``weights``, by largest remainders. Ties go to whom the numbers
    ``last`` put first, the smallest (None: all are equal), and then to the name that sorts first.

    Weights are at least 0, and one is above 0. The amounts sum to ``total``.
    """
    whole = sum(weights)
    quotas = [Fraction(total) * weight / whole for weight in weights]
    amounts = [quota.numerator // quota.denominator for quota in quotas]
    after = [0] * len(weights) if last is None else last
    order = sorted(range(len(weights)), key=lambda i: (amounts[i] - quotas[i], after[i], names[i]))
    for i in order[: total - sum(amounts)]:
        amounts[i] += 1
    return amounts


def within_bounds(
    total: int, wanted: Sequence[int], names: Sequence[str], *, floor: int = 0, cap: int | None = None
) -> list[int]:
    """Return amounts between ``floor`` and ``cap`` that sum to ``total`` and are in proportion to ``wanted`` wherever
    neither bound holds: λ·wanted, cut to the bounds, with the one λ that gives the sum.

    Bounds must leave room: n·floor ≤ total ≤ n·cap. Where all who want something are at the cap, the rest is divided
    equally among the others.
    """
    cap = total if cap is None else cap
    amounts = [0] * len(wanted)
    free, left = list(range(len(wanted))), total
    while free:
        scale = sum(wanted[i] for i in free)
        weights = {i: Fraction(wanted[i] if scale else 1, scale or len(free)) for i in free}
        low = [i for i in free if weights[i] * left < floor]
        high = [i for i in free if weights[i] * left > cap]
        missing = sum(floor - weights[i] * left for i in low)
        beyond = sum(weights[i] * left - cap for i in high)
        # Only the side that outweighs the other is surely at its bound: the others' λ moves away from it.
        settled, bound = (low, floor) if missing >= beyond else (high, cap)
        if not settled:
            rounded = divide(left, [weights[i] for i in free], [names[i] for i in free])
            for i, amount in zip(free, rounded, strict=True):
                amounts[i] = amount
            break
        for i in settled:
            amounts[i] = bound
        left -= bound * len(settled)
        free = [i for i in free if i not in set(settled)]
    return amounts
