"""Sentences of one contributor's statement, addressed to the contributor."""

from collections.abc import Sequence
from decimal import Decimal

from diffcredit.payout.records import Payout, Row
from diffcredit.payout.taxes import Tax
from diffcredit.report import numbers
from diffcredit.report.calculation import Step
from diffcredit.report.money import percentage
from diffcredit.report.payout_words import (
    INDISTINCT,
    above_decimals,
    confidence,
    fixed_rule,
    help_decimals,
    indistinct,
    merit_rule,
    money_format,
    part_by_merit,
    testing,
)


def outcome(payout: Payout, row: Row) -> str:
    """Return what becomes of the amount, in a sentence."""
    money = money_format(payout)
    if row.paid and row.carried:
        return f"{money.exact(row.paid)} are paid now and {money.exact(row.carried)} are carried forward."
    if row.paid:
        return "All of it is paid now." if row.paid == row.amount else f"{money.exact(row.paid)} are paid now."
    return f"Nothing is paid now; {money.exact(row.carried)} are carried forward." if row.carried else ""


def rule(payout: Payout, row: Row) -> str:
    """Return how the pool was divided, in sentences."""
    r, money = part_by_merit(payout), money_format(payout)
    found = f"The pool of {money.exact(payout.pool)} was divided among {len(payout.rows):,} contributors: "
    if not r:
        return f"{found}all of it {fixed_rule(payout)}. {_why(payout)}"
    if r == 1:
        return f"{found}all of it by merit, which is {merit_rule(payout)}."
    return (
        f"{found}{percentage(1 - r)} {fixed_rule(payout)} (the fixed part), and {percentage(r)} by merit, which is "
        f"{merit_rule(payout)}. {_why(payout)}"
    )


def _why(payout: Payout) -> str:
    """Return why so much of the pool follows merit, unless the policy simply states it."""
    return payout.r_words if payout.policy["r"] == "reliability" else ""


def measured(payout: Payout) -> str:
    """Return what the help was measured on, in a sentence."""
    return (
        f"Measured on {numbers.plain(payout.evaluations)} models, each trained with the images of some contributors "
        "and without the others’."
    )


def help_(payout: Payout, row: Row) -> str:
    """Return how much a contributor helps beside the average one, in sentences."""
    places = help_decimals(payout)
    low, high = numbers.number(row.help_low, places), numbers.number(row.help_high, places)
    interval = f"{confidence(payout)} interval {low} to {high}"
    if indistinct(row):
        return f"{INDISTINCT} The estimate is {_more_or_less(row.help, places)} ({interval})."
    return f"Your images help {_more_or_less(row.help, places)} than those of the average contributor ({interval})."


def _more_or_less(help_: float, places: int) -> str:
    return f"{numbers.number(abs(help_), places)} {'more' if help_ >= 0 else 'less'}"


def above(payout: Payout, row: Row) -> str:
    """Return the help above the reference, in sentences."""
    places = above_decimals(payout)
    total = (payout.full - payout.empty) * (1 if payout.higher_is_better else -1)
    value = numbers.signed(row.above, places)
    low, high = (numbers.number(end, places) for end in (row.above_low, row.above_high))
    return (
        f"All contributors together improve on {payout.reference} by {numbers.number(total, places)}. Your part of "
        f"that is {value} ({confidence(payout)} interval {low} to {high})."
    )


def tested(payout: Payout) -> str:
    """Return the verdict on the estimates and how they were tested, in sentences."""
    return f"The verdict on these estimates is “{payout.level}”. {testing(payout)}"


def rank(payout: Payout, row: Row) -> str:
    """Return the place among all contributors with its interval, in a sentence."""
    n = len(payout.rows)
    if row.rank_low == row.rank_high:
        return f"{row.rank} of {n:,}, and that is sure ({confidence(payout)})."
    span = f"{row.rank_low} to {row.rank_high}"
    return f"{row.rank} of {n:,} by the estimate; anything from {span} is possible ({confidence(payout)} interval)."


def sure(payout: Payout, row: Row) -> str:
    """Return how sure the amount is, in sentences."""
    money = money_format(payout)
    if not part_by_merit(payout):
        return "This amount does not depend on the credits."
    if row.amount_low == row.amount_high:
        return (
            "If everybody’s help were known exactly, the same policy would very likely give you the same amount "
            f"({confidence(payout)} interval)."
        )
    found = (
        f"If everybody’s help were known exactly, the same policy would give you between {money.exact(row.amount_low)} "
        f"and {money.exact(row.amount_high)} ({confidence(payout)} interval)."
    )
    if row.overtaken is None:
        return found
    return f"{found} The chance that the contributor in the next place really helps more is {_chance(row.overtaken)}."


def _chance(part: float) -> str:
    if part < 0.01:
        return "below 1 %"
    return f"{100 * part:.0f} %"


def rate(tax: Tax) -> str:
    """Return the rate that is withheld."""
    return percentage(tax.rate)


def taxes(tax: Tax) -> str:
    """Return what the payer states of a contributor's taxes, in sentences."""
    named = {"residence": "your residence", "form_on_file": "form on file", "form_to_issue": "form to be issued"}
    stated = [f"{name}: {text}" for key, name in named.items() if (text := getattr(tax, key))]
    return f"The tax is as the payer states it{'; '.join(['', *stated])}. It is no part of the ledger."


def works(row: Row) -> str:
    """Return how many works were given, used and left out, in a sentence."""
    used = f"{row.images_used:,} of your images were used"
    if row.images_used == 1:
        used = "1 of your images was used"
    if row.images_given is None:
        return f"{used}. How many you gave in all was not at hand when this was paid."
    if not row.excluded:
        return f"{used}: all that you gave."
    others = ", ".join(f"{count:,} {reason}" for reason, count in sorted(row.excluded.items()))
    return f"{used}, of {row.images_given:,} that you gave. Not used: {others}."


def legend(payout: Payout, row: Row, steps: Sequence[Step]) -> str:
    """Return what the numbers in a statement's sums are, in a sentence; empty where there are no sums."""
    found = [step.legend for step in steps if step.legend]
    return f"In these sums, {money_format(payout).bare(payout.pool)} is the pool; {'; '.join(found)}." if found else ""


def limits(payout: Payout, row: Row) -> str:
    """Return the policy's limits, in a sentence; empty where it has none."""
    named = {"floor": "at least {} for everybody", "cap": "at most {} for anybody", "minimum": "no payment below {}"}
    stated = {key: Decimal(payout.policy[key] or 0) for key in named}
    found = [text.format(money_format(payout).exact(stated[key])) for key, text in named.items() if stated[key]]
    return f"The policy’s limits: {'; '.join(found)}." if found else ""
