"""Balances: what contributors earned in earlier periods and were not paid, because it was less than the minimum.

They come from the last payout of the same ledger, or from a CSV file such as the ``payouts.csv`` of another study.
Nothing is lost between periods: opening balance + amount = paid + carried.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from diffcredit.errors import UserError
from diffcredit.payout.csv_files import read_rows, who
from diffcredit.payout.records import Payout
from diffcredit.study.policy import money
from diffcredit.util.decimals import exactly
from diffcredit.util.sanitize import shortened

AMOUNTS = ("balance", "carried")  # the second as in payouts.csv


@dataclass(frozen=True)
class Settled:
    """What is ``paid`` now and what is ``carried`` forward."""

    paid: Decimal
    carried: Decimal


@exactly
def settle(opening: Decimal, amount: Decimal, minimum: Decimal, rounding: Decimal) -> Settled:
    """Return what is paid of a balance and an amount: all whole coins if they reach the minimum, otherwise nothing."""
    due = opening + amount
    paid = (due // rounding if due >= minimum else 0) * rounding  # 0.00 has all the decimals of a coin too
    return Settled(paid, due - paid)


def opening_balances(
    last: Payout | None, given: Mapping[str, Decimal] | None, contributors: Collection[str]
) -> dict[str, Decimal]:
    """Return every contributor's opening balance, from the ``last`` payout of the ledger and those ``given``.

    Where both know a balance they must agree. A balance of somebody who is no contributor any more is refused: it would
    be lost.
    """
    carried = {} if last is None else {row.contributor: row.carried for row in last.rows}
    for name, balance in carried.items():
        if balance and name not in contributors:
            raise UserError(
                f"balance: {shortened(name)} is no contributor of the study any more, but {balance} was carried "
                f"forward from {last.period if last else ''}; pay by the study that has this contributor"
            )
    for name, balance in carried.items():
        if given is not None and given.get(name, Decimal(0)) != balance:
            raise UserError(
                f"balance: {name!r} has {given.get(name, Decimal(0))}, but {balance} was carried forward from "
                f"{last.period if last else ''}. The ledger knows the balances of its own payouts, and those of other "
                "studies count with a study's first payout alone; settle this one by itself and leave --balance out"
            )
    known = carried if given is None else given
    return {name: known.get(name, Decimal(0)) for name in contributors}


def read_balances(file: Path, currency: str, contributors: Collection[str]) -> dict[str, Decimal]:
    """Read a CSV with the columns ``contributor`` and ``balance`` or ``carried``; a column ``currency`` must have the
    policy's. Contributors without a row have no balance."""
    found: dict[str, Decimal] = {}
    for line, row in read_rows(file, "balance", AMOUNTS, ("currency",)):
        where, name = f"{file}:{line}", who(row)
        column = next(each for each in AMOUNTS if each in row)
        try:
            balance = money(row[column])
        except ValueError as error:
            raise UserError(f"{where}: {column}: {shortened(row[column])} is not accepted; {error}") from None
        if row.get("currency", currency).strip() != currency:
            raise UserError(f"{where}: currency: {shortened(row['currency'])}; the policy pays in {currency}")
        if name not in contributors:
            if not balance:
                continue
            raise UserError(
                f"{where}: contributor: {shortened(name)} is no contributor of the study, but has a balance of "
                f"{balance}; settle it by itself and remove the line"
            )
        if name in found:
            raise UserError(f"{where}: contributor: {shortened(name)} is there twice; one line each is accepted")
        found[name] = balance
    return found
