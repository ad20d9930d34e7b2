"""What each contributor's two parts of a pool follow from: weights and merits, and everybody's together."""

from dataclasses import dataclass
from fractions import Fraction

from diffcredit.payout.records import Payout, Row


@dataclass(frozen=True)
class Shares:
    """What a contributor's two parts follow from: ``weight`` of all ``weights`` in the fixed part, ``worth`` of all
    ``worths`` in the part that follows merit. Who is cut off from all payment has no part in either."""

    weight: int
    weights: int
    worth: float
    worths: Fraction
    cut: bool


def shares(payout: Payout, row: Row) -> Shares:
    """Return what a contributor's parts follow from."""
    weights, worths = sums(payout)
    return Shares(_weight(payout, row), weights, row.worth, worths, is_cut(payout, row))


def sums(payout: Payout) -> tuple[int, Fraction]:
    """Return all weights in the fixed part and all merits, each added up."""
    kept = [each for each in payout.rows if not is_cut(payout, each)]
    return sum(_weight(payout, each) for each in kept), sum((Fraction(each.worth) for each in kept), Fraction(0))


def is_cut(payout: Payout, row: Row) -> bool:
    """Whether a contributor surely makes the model worse, and the policy cuts such contributors off."""
    return payout.policy["negatives"] == "cut" and row.above_high < 0


def _weight(payout: Payout, row: Row) -> int:
    if payout.policy["fixed"] == "equal":
        return 1
    return row.images_used if payout.policy["fixed"] == "images" or row.lots is None else row.lots
