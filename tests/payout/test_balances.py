"""Balances between periods: settling, what the ledger and a file know, and spelling."""

from decimal import Decimal, localcontext

import pytest
from tests.report.made_up_payout import payout

from diffcredit.errors import UserError
from diffcredit.payout import csv_files
from diffcredit.payout.balances import opening_balances, read_balances, settle

CENT = Decimal("0.01")


@pytest.mark.parametrize(
    ("opening", "amount", "minimum", "rounding", "paid", "carried"),
    [
        ("0", "25", "25", "0.01", "25", "0"),  # a minimum that is reached is paid
        ("0", "24.99", "25", "0.01", "0", "24.99"),
        ("20", "4.99", "25", "0.01", "0", "24.99"),
        ("20", "5", "25", "0.01", "25", "0"),
        ("0.0049", "1", "0", "0.01", "1", "0.0049"),  # from another study, with smaller coins
        ("0.03", "1.00", "0", "0.05", "1.00", "0.03"),
        ("0.03", "1.05", "1.08", "0.05", "1.05", "0.03"),
        ("0", "0", "0", "0.01", "0", "0"),
    ],
)
def test_what_is_paid_and_what_is_carried(opening, amount, minimum, rounding, paid, carried):
    with localcontext(prec=3):
        found = settle(*map(Decimal, (opening, amount, minimum, rounding)))
    assert (found.paid, found.carried) == (Decimal(paid), Decimal(carried))
    assert found.paid.as_tuple().exponent == Decimal(rounding).as_tuple().exponent, "nothing is 0.00, not 0"


def test_what_the_ledger_knows():
    """Of the made-up payout, Ben has 220 carried forward, the others nothing."""
    everybody = ("Ann", "Ben", "Cy", "Dee")
    assert opening_balances(None, None, everybody) == dict.fromkeys(everybody, Decimal(0))
    assert opening_balances(payout(), None, everybody)["Ben"] == Decimal("220.00")
    assert sum(opening_balances(payout(), None, everybody).values()) == 220
    given = {"Ben": Decimal(220), "Dee": Decimal(5)}
    assert opening_balances(payout(), given, everybody) == {
        "Ann": 0,
        "Ben": Decimal(220),
        "Cy": 0,
        "Dee": Decimal(5),
    }
    assert opening_balances(None, {"Ann": Decimal(7)}, everybody)["Ann"] == 7
    with pytest.raises(
        UserError, match=r"'Ben' is no contributor of the study any more, but 220\.00 was carried forwa"
    ):
        opening_balances(payout(), None, ("Ann", "Cy"))
    assert opening_balances(payout(), None, ("Ben",)) == {"Ben": Decimal(220)}  # who is owed nothing may go
    for wrong in ({}, {"Ben": Decimal(219)}, {"Ben": Decimal(220), "Ann": Decimal(1)}):
        with pytest.raises(UserError, match=r"balance: '(Ann|Ben)' has .*, but .* was carried forward from 2026-Q1"):
            opening_balances(payout(), wrong, everybody)


def test_a_table_as_spreadsheets_write_it(tmp_path):
    file = tmp_path / "balances.csv"
    rows = (
        "contributor,carried,currency",
        "E\u0301mile,1.50, EUR ",
        "'=1+1,2\u202f,EUR",
        "  ann  ,0.10,EUR",
        "gone,0,EUR",
        "",
    )
    text = "\r\n".join(rows)
    file.write_text(text.replace("\u202f", ""), encoding="utf-8-sig", newline="")
    found = read_balances(file, "EUR", ("Émile", "=1+1", "ann"))
    assert found == {"Émile": Decimal("1.50"), "=1+1": Decimal(2), "ann": Decimal("0.10")}


def test_a_balance_counts_before_what_was_carried(tmp_path):
    file = tmp_path / "balances.csv"
    file.write_text("contributor,carried,balance\nann,1,2\n")
    assert read_balances(file, "EUR", ("ann",)) == {"ann": Decimal(2)}


def test_a_file_that_is_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "LARGEST", 40)
    file = tmp_path / "balances.csv"
    file.write_text("contributor,balance\nann,1\n")
    assert read_balances(file, "EUR", ("ann",)) == {"ann": Decimal(1)}
    file.write_text("contributor,balance\nann,1\n" + "\n" * 40)
    with pytest.raises(UserError, match=r"balances\.csv: more than 0 MB; a table of contributors is accepted"):
        read_balances(file, "EUR", ("ann",))
