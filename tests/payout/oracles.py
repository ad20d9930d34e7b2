"""Second implementations of what a payout computes: slow, plain, and written without looking at the product's."""

import itertools
from collections.abc import Sequence
from fractions import Fraction
from math import floor


def all_divisions(total: int, n: int) -> list[tuple[int, ...]]:
    """Every way to give ``total`` coins to ``n`` people."""
    if n == 1:
        return [(total,)]
    return [(first, *rest) for first in range(total + 1) for rest in all_divisions(total - first, n - 1)]


def fairest(total: int, weights: Sequence[Fraction | int], names: Sequence[str]) -> tuple[int, ...]:
    """The division nearest to the exact one by its squared distance, which is what largest remainders find; among equal
    ones, that which gives most to the names that sort first."""
    whole = Fraction(sum(weights))
    quotas = [Fraction(total) * weight / whole for weight in weights]
    order = sorted(range(len(names)), key=lambda i: names[i])

    def cost(division: tuple[int, ...]) -> tuple[Fraction, tuple[int, ...]]:
        distance = sum((coins - quota) ** 2 for coins, quota in zip(division, quotas, strict=True))
        return Fraction(distance), tuple(-division[i] for i in order)

    return min(all_divisions(total, len(weights)), key=cost)


def clipped(total: int, wanted: Sequence[int | Fraction], low: int, high: int) -> list[Fraction]:
    """clip(λ·wanted, low, high) with the λ at which the sum is ``total``; exactly, by trying every stretch of λ between
    two points at which somebody reaches a bound. Where no λ is large enough, the rest is divided among those who want
    nothing."""
    points = sorted({Fraction(bound) / want for want in wanted if want for bound in (low, high)})

    def at(scale: Fraction) -> list[Fraction]:
        return [min(max(scale * want, Fraction(low)), Fraction(high)) for want in wanted]

    for left, right in itertools.pairwise([Fraction(0), *points]):
        below, above = sum(at(left)), sum(at(right))
        if below <= total <= above:
            if below == above:
                return at(left)
            return at(left + (right - left) * (total - below) / (above - below))
    short = total - sum(at(points[-1])) if points else total - low * len(wanted)
    idle = [i for i, want in enumerate(wanted) if not want]
    found = at(points[-1]) if points else [Fraction(low)] * len(wanted)
    for i in idle:
        found[i] += Fraction(short, len(idle))
    return found


def rounded_to_a_coin(exact: Sequence[Fraction], coins: Sequence[int]) -> bool:
    """Whether everybody got the whole coins of the exact amount, or one more."""
    return all(floor(amount) <= given <= -floor(-amount) for amount, given in zip(exact, coins, strict=True))
