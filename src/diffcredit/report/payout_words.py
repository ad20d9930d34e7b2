"""Sentences on a payout that its page and every statement share.

They say no more than the record does: that an entry is older than an evaluation *of this ledger*, not that nobody could
have known; that an interval holds by the estimate, not that it is true.
"""

import re
from collections.abc import Sequence
from decimal import Decimal

from diffcredit.payout.records import Payout, Row
from diffcredit.payout.shares import is_cut
from diffcredit.report import numbers
from diffcredit.report.money import NO_BREAK, MoneyFormat, percentage

AFTERWARDS = "The policy was entered after the first evaluations, so whoever wrote it could have known the credits."
UNFINISHED = (
    "The study was not finished when this was paid: more evaluations were planned, and they may change credits."
)
UNTRAINED = (
    "Merit is counted from an untrained network, which is nobody’s alternative: it says little about who helps more."
)
INDISTINCT = "Cannot be distinguished from the average contributor."
STYLES = {"pay by it": "pay", "use with care": "care", "do not use": "stop"}
"""The style of each level of a verdict."""


def money_format(payout: Payout) -> MoneyFormat:
    """Return how the amounts of a payout are written."""
    return MoneyFormat(payout.currency, str(payout.policy["rounding"]))


def warnings(payout: Payout) -> list[str]:
    """Return the sentences that stand before all others, wherever something of this payout is shown."""
    found = [] if payout.before_evaluations else [AFTERWARDS]
    if payout.reference_kind == "untrained" and payout.policy["merit"] == "help" and part_by_merit(payout):
        found.append(UNTRAINED)
    if payout.against_verdict:
        found.append(
            f"This was paid despite the verdict “{payout.level}” on the credits. The payer’s reason: “{payout.despite}”"
        )
    return found if payout.finished else [*found, UNFINISHED]


def entered(payout: Payout) -> str:
    """Return when the policy was entered, in a sentence."""
    found = f"The policy was entered in the study’s ledger on {moment(payout.entered)}"
    return f"{found}, before the ledger’s first evaluation." if payout.before_evaluations else f"{found}."


def moment(stamp: str) -> str:
    """Return an ISO 8601 time in UTC to the minute, and any other text as it is."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)\S*(?:Z|\+00:00)", stamp)
    return f"{found[1]}, {found[2]} UTC" if found else stamp


def paid_for(payout: Payout) -> str:
    """Return which way the property is worth money, and how far it is from the reference, in sentences."""
    places = above_decimals(payout)
    full, empty = numbers.number(payout.full, places), numbers.number(payout.empty, places)
    way = "raising" if payout.higher_is_better else "lowering"
    return (
        f"Contributors are paid for {way} it. It is {empty} for {payout.reference} and {full} with everybody’s images."
    )


def testing(payout: Payout) -> str:
    """Return how far the credits were tested and what the verdict says; a sentence that is both stands once."""
    return payout.verdict if payout.tested in payout.verdict else f"{payout.verdict} {payout.tested}".strip()


def moved(payout: Payout) -> str:
    """Return how much of the pool is luck, in a sentence; empty where nothing follows the credits."""
    if not payout.moved:
        return ""
    amount = money_format(payout).rounded(payout.moved)
    return f"If all evaluations were repeated with other random seeds, about {amount} would go to other people."


def followed(payout: Payout) -> str:
    """Return how much of the pool follows merit."""
    return percentage(part_by_merit(payout))


def part_by_merit(payout: Payout) -> Decimal:
    """Return the part of the pool that follows merit: r, or nothing where nobody has merit."""
    merit = any(row.worth > 0 for row in payout.rows if not is_cut(payout, row))
    return payout.r if merit else Decimal(0)


def confidence(payout: Payout) -> str:
    return f"{100 * payout.confidence:.4g}{NO_BREAK}%"


def fixed_rule(payout: Payout) -> str:
    """Return how the fixed part is divided."""
    if payout.policy["fixed"] == "equal":
        return "equally"
    if payout.policy["fixed"] == "images" or payout.lot is None:
        return "by the number of images used"
    return f"by the number of whole lots of {numbers.plain(payout.lot)} images"


def merit_rule(payout: Payout) -> str:
    """Return what merit is."""
    if payout.policy["merit"] == "least":
        return "help above the least helpful " + ("lot, added up" if payout.lot else "contributor")
    least = ", at least 0" + (" for each lot, added up" if payout.lot else "")
    return f"help above the reference ({payout.reference}){least}"


def negatives_rule(payout: Payout) -> str:
    """Return what happens to those whose images make the model worse."""
    if payout.policy["negatives"] == "cut":
        return "gets nothing at all, where that is sure"
    if payout.policy["merit"] == "least":
        return "has merit all the same, unless nobody helps less"
    return "has no merit, and keeps the fixed part"


def indistinct(row: Row) -> bool:
    """Whether a contributor's interval contains the average, or is not known."""
    return not (row.help_low > 0 or row.help_high < 0)


def help_decimals(payout: Payout) -> int:
    """Return the decimals that everybody's help is shown with."""
    return _decimals([(row.help, row.help_low, row.help_high) for row in payout.rows])


def above_decimals(payout: Payout) -> int:
    """Return the decimals of help above the reference, and of the property itself."""
    found = [(row.above, row.above_low, row.above_high) for row in payout.rows]
    return _decimals(found, (payout.full, payout.empty))


def _decimals(found: Sequence[tuple[float, float, float]], beside: Sequence[float] = ()) -> int:
    values, lows, highs = zip(*found, strict=True)
    return numbers.decimals(values, lows, highs, beside)
