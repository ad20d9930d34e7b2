"""A payout as CSV, for spreadsheets and payment systems, and as the balances of the next period."""

from typing import Any

from diffcredit.payout.records import Payout
from diffcredit.util.sanitize import csv_text

COLUMNS = (
    *("contributor", "images_used", "help", "low", "high", "fixed", "merit", "r", "amount", "carried", "paid"),
    *("reason", "amount_low", "amount_high", "opening", "currency", "period", "above", "worth"),
)


def payouts_csv(payout: Payout) -> str:
    """Return a row for each contributor, in the order of their names. Amounts are written with all their digits;
    ``low`` to ``high`` is the interval of the help, ``amount_low`` to ``amount_high`` that of the amount. ``above`` is
    the help above the reference, and ``worth`` the merit in the property's unit."""
    rows = []
    for row in payout.rows:
        shared: dict[str, Any] = {"low": row.help_low, "high": row.help_high, "r": payout.r}
        shared |= {"currency": payout.currency, "period": payout.period}
        cells = (shared[name] if name in shared else getattr(row, name) for name in COLUMNS)
        rows.append([cell if isinstance(cell, int | float) else str(cell) for cell in cells])
    return csv_text([COLUMNS, *rows])
