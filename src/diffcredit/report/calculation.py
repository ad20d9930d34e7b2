"""One contributor's amount, step by step, in numbers that give the same amount on a pocket calculator.

Nobody else's numbers are needed for it: only the pool, and sums over all contributors.
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from diffcredit.payout.records import Payout, Row
from diffcredit.payout.shares import Shares, shares
from diffcredit.report.numbers import number, plain
from diffcredit.report.payout_words import fixed_rule, money_format, part_by_merit

MOST_DIGITS = 17  # of a binary fraction


@dataclass(frozen=True)
class Step:
    """One line: what it is, the ``sum`` to type in (empty where the record has no more), its result, and what the
    numbers in the sum are."""

    name: str
    sum: str
    amount: Decimal
    legend: str = ""


def steps(payout: Payout, row: Row) -> tuple[Step, ...]:
    """Return the steps to a contributor's amount: the fixed part, the part that follows merit, and what came after."""
    share, r = shares(payout, row), part_by_merit(payout)
    found = []
    if r < 1 or row.fixed:
        found.append(_fixed_step(payout, row, share, r))
    if r > 0 or row.merit:
        found.append(_merit_step(payout, row, share, r))
    if row.amount != row.fixed + row.merit and not share.cut:
        found.append(Step("After what the note below says", "", row.amount))
    return tuple(found)


def _fixed_step(payout: Payout, row: Row, share: Shares, r: Decimal) -> Step:
    name = f"Fixed part, divided {fixed_rule(payout)}"
    if share.cut:
        return Step(name, "", row.fixed)
    parts = [money_format(payout).bare(payout.pool)]
    if r:
        parts.append(f"× (1 − {r.normalize():f})")
    if share.weight != 1 or payout.policy["fixed"] != "equal":
        parts.append(f"× {plain(share.weight)}")
    sum_ = " ".join([*parts, f"÷ {plain(share.weights)}"])
    exact = Fraction(payout.pool) * (1 - Fraction(r)) * share.weight / share.weights
    whole = plain(share.weights)
    things = {"equal": "", "images": "images used", "lots": "whole lots"}[payout.policy["fixed"]]
    legend = f"{plain(share.weight)} of all {whole} {things} are yours" if things else f"{whole} contributors are paid"
    return _if_right(payout, Step(name, sum_, row.fixed, legend), exact)


def _merit_step(payout: Payout, row: Row, share: Shares, r: Decimal) -> Step:
    name = "Part that follows merit"
    if share.cut or not share.worths:
        return Step(name, "", row.merit)
    followed = Fraction(payout.pool) * Fraction(r)
    worth, worths = _readable(share, followed, Fraction(row.merit), Fraction(str(payout.policy["rounding"])))
    sum_ = f"{money_format(payout).bare(payout.pool)} × {r.normalize():f} × {worth} ÷ {worths}"
    legend = f"{worth} is your merit and {worths} everybody’s together"
    exact = followed * Fraction(share.worth) / share.worths
    return _if_right(payout, Step(name, sum_, row.merit, legend), exact)


def _readable(share: Shares, followed: Fraction, amount: Fraction, coin: Fraction) -> tuple[str, str]:
    """Return a merit and the sum of all merits with so many decimals that their part of ``followed`` is right within
    half a ``coin`` and agrees with the recorded ``amount``. Statements of one payout have the same number of them,
    unless all are zeros."""
    worths = float(share.worths)
    exact = followed * Fraction(share.worth) / share.worths
    finest = 2 * followed / (share.worths * coin)
    first = max(1, math.ceil(math.log10(finest.numerator) - math.log10(finest.denominator))) if finest else 1
    for decimals in range(first, first + MOST_DIGITS):
        one, all_ = (Fraction(f"{value:.{decimals}f}") for value in (share.worth, worths))
        shown = followed * one / all_ if all_ else None
        if shown is not None and abs(shown - exact) < coin / 2 and _agree(shown, amount, coin):
            break
    while decimals > 1 and all((value * 10 ** (decimals - 1)).denominator == 1 for value in (one, all_)):
        decimals -= 1
    return number(share.worth, decimals), number(worths, decimals)


def _if_right(payout: Payout, step: Step, exact: Fraction) -> Step:
    """Return the step, with its sum if that gives the recorded amount: a statement shows none that does not."""
    coin = Fraction(str(payout.policy["rounding"]))
    return step if _agree(exact, Fraction(step.amount), coin) else Step(step.name, "", step.amount)


def _agree(exact: Fraction, amount: Fraction, coin: Fraction) -> bool:
    """Return whether a sum, rounded to coins, is the amount or a coin beside it. An amount is rounded twice: the pool
    is first cut into two parts of whole coins."""
    return abs(round(exact / coin) - amount / coin) <= 1
