"""The sums of a statement, worked out again from its own numbers."""

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from diffcredit.util.decimals import exactly
from diffcredit.util.sanitize import shortened

DIGITS = 40  # of an amount, before and behind the point: more is refused before anything is worked out
PARTS = ("fixed", "merit", "amount", "amount_low", "amount_high", "opening", "carried", "paid")
TAX = {"rate", "residence", "form_on_file", "form_to_issue", "withheld", "transferred"}
FINEST = Fraction(1, 10**11)  # merits are divided by with eleven digits


def amount(text: str) -> Decimal:
    """Return the number that an amount's text stands for."""
    try:
        found = Decimal(text) if isinstance(text, str) and len(text) <= 2 * DIGITS else None
    except InvalidOperation:
        found = None
    if found is None or not found.is_finite() or abs(found.adjusted()) > DIGITS:
        raise ValueError(f"{shortened(text)} is no amount")
    return found


@exactly
def wrong_sums(payout: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Return which sum of a contributor's ``row`` does not come out; empty where all do."""
    policy, parts = payout["policy"], {name: amount(row[name]) for name in PARTS}
    if min(parts.values()) < 0:
        return "has an amount below 0"
    due, minimum, coin = parts["opening"] + parts["amount"], amount(policy["minimum"]), amount(policy["rounding"])
    if due != parts["paid"] + parts["carried"]:
        return "opening balance and earned are not what is paid and carried forward"
    if coin <= 0 or parts["paid"] != (due // coin * coin if due >= minimum else 0):
        return "what is paid now is not what the policy's minimum and smallest coin make of it"
    if not parts["amount_low"] <= parts["amount"] <= parts["amount_high"]:
        return "the amount lies outside what it could be"
    return _wrong_parts(payout, row, parts, coin)


def _wrong_parts(payout: Mapping[str, Any], row: Mapping[str, Any], parts: Mapping[str, Decimal], coin: Decimal) -> str:
    """Return which part of the pool is not what the policy gives; empty where both are, within a coin or two."""
    policy, pool = payout["policy"], Fraction(amount(payout["pool"]))
    if policy["negatives"] == "cut" and row["above_high"] < 0:
        cut_off = not (parts["fixed"] or parts["merit"] or parts["amount"])
        return "" if cut_off else "the policy gives nothing to who makes the model worse, and this statement does"
    worth, worths = _number(row["worth"]), _number(payout["worths"])
    r = Fraction(amount(payout["r"])) if worths else Fraction(0)
    slack = Fraction(3, 2) * Fraction(coin) + pool * payout["contributors"] * FINEST
    by_weight = pool * (1 - r) * _weight(policy, row) / payout["weights"]
    if abs(by_weight - Fraction(parts["fixed"])) > slack:
        return "the fixed part is not pool × (1 − r) × weight ÷ weights"
    by_merit = pool * r * worth / worths if worths else Fraction(0)
    if abs(by_merit - Fraction(parts["merit"])) > slack:
        return "the part that follows merit is not pool × r × worth ÷ worths"
    floor, cap = amount(policy["floor"]), None if policy["cap"] is None else amount(policy["cap"])
    within = floor <= parts["amount"] and (cap is None or parts["amount"] <= cap)
    if parts["amount"] != parts["fixed"] + parts["merit"] and not (within and (floor or cap is not None)):
        return "the amount is not the sum of its two parts, and no floor or cap of the policy says why"
    return ""


def _number(value: float) -> Fraction:
    if type(value) not in (int, float):  # a text could stand for a number that no memory holds
        raise ValueError(f"{shortened(value)} is no number")
    return Fraction(value)


def _weight(policy: Mapping[str, Any], row: Mapping[str, Any]) -> int:
    """Return a contributor's weight in the fixed part."""
    if policy["fixed"] == "equal":
        return 1
    return row["images_used"] if policy["fixed"] == "images" or row["lots"] is None else row["lots"]


@exactly
def tax_problems(tax: Mapping[str, str], paid: Decimal, payout: Mapping[str, Any]) -> str:
    """Return which sum of the tax does not come out; empty where all do."""
    if tax.keys() != TAX or not all(isinstance(each, str) for each in tax.values()):
        raise ValueError(f"tax: {', '.join(sorted(TAX))} are expected")
    coin, rate = amount(payout["policy"]["rounding"]), amount(tax["rate"])
    withheld = (paid * rate / coin).quantize(Decimal(1), ROUND_HALF_UP) * coin
    if not 0 <= rate <= 1 or amount(tax["withheld"]) != withheld or amount(tax["transferred"]) != paid - withheld:
        return "the tax withheld is not its rate of what is paid now"
    return ""
