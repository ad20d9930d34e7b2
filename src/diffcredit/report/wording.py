"""A contributor's help in the property's own words."""

import math

from diffcredit.report.numbers import NARROW_SPACE, decimals_for, help_decimals, number
from diffcredit.report.records import CreditTable
from diffcredit.report.standings import Standing


def help_in_words(table: CreditTable, row: Standing) -> str:
    """Return what would be different, on average over all coalitions of others, with an average contributor in this
    one's place, in a sentence."""
    if row.versus_average == "unsettled":
        return "Cannot be distinguished from the average contributor."
    lower, higher = table.differences
    rises = (row.help < 0) == table.higher_is_better
    sentence = (higher if rises else lower) or f"{table.title} would be {{}} {'higher' if rises else 'lower'}"
    low, high = sorted(map(abs, (row.help_low, row.help_high)))
    said = sentence.replace("{}", _amount(table, abs(row.help)))
    interval = f" ({_amount(table, low)} to {_amount(table, high)})" if math.isfinite(high) else ""
    small = "" if row.matters in (True, None) else " That is too small to matter."
    return f"With an average contributor in their place, {said}{interval}, averaged over groups of others.{small}"


def _amount(table: CreditTable, size: float) -> str:
    if table.relative and table.full > 0:
        part = 100 * size / table.full
        return f"{number(part, min(3, decimals_for(part)) if part else 0)}{NARROW_SPACE}%"
    return f"{number(size, help_decimals(table))}{f' {table.unit}' if table.unit else ''}"
