"""Taxes that a payer withholds, by a table of the payer's.

They are no part of the ledger: where somebody lives and which form they filed is nobody else's business, and rows of a
ledger are never removed. Nor do they change an amount: what is paid is divided before tax.
"""

from collections.abc import Collection
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from diffcredit.errors import UserError
from diffcredit.payout.csv_files import read_rows, who
from diffcredit.study.policy import decimal_of, plain_text
from diffcredit.util.decimals import exactly
from diffcredit.util.sanitize import shortened, unescape_formula

TEXTS = ("residence", "form_on_file", "form_to_issue")
RATE = "rate"


@dataclass(frozen=True)
class Tax:
    """What a payer states of one contributor's taxes: texts, which may be empty, and the ``rate`` withheld, as a part
    of 1."""

    rate: Decimal
    residence: str = ""
    form_on_file: str = ""
    form_to_issue: str = ""

    @exactly
    def withheld(self, paid: Decimal, rounding: Decimal) -> Decimal:
        """Return what is withheld of a payment, to the nearest coin of size ``rounding``; half a coin counts as one."""
        return (paid * self.rate / rounding).quantize(Decimal(1), ROUND_HALF_UP) * rounding


def read_taxes(file: Path, contributors: Collection[str]) -> dict[str, Tax]:
    """Read a CSV with the columns ``contributor`` and ``rate`` (``0.30`` or ``30 %``), and if wanted ``residence``,
    ``form_on_file`` and ``form_to_issue``. Of contributors without a row nothing is known."""
    found: dict[str, Tax] = {}
    for line, row in read_rows(file, RATE, (RATE,), TEXTS):
        where, name = f"{file}:{line}", who(row)
        if name not in contributors:
            raise UserError(f"{where}: contributor: {shortened(name)} is no contributor of this payout")
        if name in found:
            raise UserError(f"{where}: contributor: {shortened(name)} is there twice; one line each is accepted")
        texts = {column: _text(row[column], f"{where}: {column}") for column in TEXTS if column in row}
        found[name] = Tax(_rate(row[RATE], f"{where}: {RATE}"), **texts)
    return found


@exactly
def _rate(given: str, where: str) -> Decimal:
    """Return a rate as a part of 1. A bare 30 is refused: it may mean 30 %, or be a slip."""
    text, sign, rest = given.strip().partition("%")
    try:
        number = decimal_of(text) / (100 if sign else 1)
    except ValueError:
        number = Decimal(-1)
    if rest or not 0 <= number <= 1:
        raise UserError(f"{where}: {shortened(given)} is not accepted; a part from 0 to 1 such as 0.30, or 30 %, is")
    return number


def _text(given: str, where: str) -> str:
    try:
        return plain_text(unescape_formula(given.strip()))
    except ValueError as error:
        raise UserError(f"{where}: {shortened(given)} is not accepted; {error}") from None
