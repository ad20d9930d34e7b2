"""Taxes: what a payer's table may say, and sums by hand."""

from decimal import Decimal, localcontext

import pytest

from diffcredit.errors import UserError
from diffcredit.payout.taxes import Tax, read_taxes

NAMES = ("Émile", "=1+1", "ann")


@pytest.mark.parametrize(
    ("paid", "rate", "rounding", "withheld"),
    [
        ("427.25", "0.3", "0.01", "128.18"),  # 128.175: half a coin counts as one
        ("100.00", "0.24", "0.01", "24.00"),
        ("0.01", "0.3", "0.01", "0.00"),
        ("10.05", "0.1", "0.05", "1.00"),  # 1.005 in coins of 0.05
        ("12345678901.23", "1", "0.01", "12345678901.23"),
        ("55", "0", "0.01", "0.00"),
    ],
)
def test_what_is_withheld(paid, rate, rounding, withheld):
    with localcontext(prec=3):
        assert Tax(Decimal(rate)).withheld(Decimal(paid), Decimal(rounding)) == Decimal(withheld)


def table(folder, *lines):
    file = folder / "tax.csv"
    file.write_text("\r\n".join(lines), encoding="utf-8-sig", newline="")
    return file


def test_a_table_as_spreadsheets_write_it(tmp_path):
    file = table(
        tmp_path,
        "residence,contributor,rate,form_on_file,form_to_issue,note",
        "FR,E\u0301mile,30 %,W-8BEN,1042-S,x",
        "'=HYPERLINK(1),'=1+1,0.1250,,,",
        ",ann,0%,W-9,1099-MISC,",
    )
    assert read_taxes(file, NAMES) == {
        "Émile": Tax(Decimal("0.3"), "FR", "W-8BEN", "1042-S"),
        "=1+1": Tax(Decimal("0.125"), "=HYPERLINK(1)"),
        "ann": Tax(Decimal(0), "", "W-9", "1099-MISC"),
    }
    assert read_taxes(table(tmp_path, "contributor,rate", "ann,1"), NAMES) == {"ann": Tax(Decimal(1))}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["contributor,residence", "ann,FR"], "has the columns 'contributor, residence'; contributor and rate are"),
        (["contributor,rate", "ann,30"], "tax.csv:2: rate: '30' is not accepted; a part from 0 to 1 such as 0.30, or"),
        (["contributor,rate", "ann,"], "tax.csv:2: rate: '' is not accepted"),
        (["contributor,rate", "ann,-0.1"], "rate: '-0.1' is not accepted"),
        (["contributor,rate", "ann,130 %"], "rate: '130 %' is not accepted"),
        (["contributor,rate", "ann,30 % of it"], "rate: '30 % of it' is not accepted"),
        (["contributor,rate", "ann,nan"], "rate: 'nan' is not accepted"),
        (["contributor,rate", "zoe,0.1"], "tax.csv:2: contributor: 'zoe' is no contributor of this payout"),
        (["contributor,rate", "ann,0.1", "ann,0.2"], "tax.csv:3: contributor: 'ann' is there twice"),
        (["contributor,rate,rate", "ann,0.1,0.2"], "has the column 'rate' twice"),
        (["contributor,rate", "ann,0.1,0.2"], "tax.csv:2: has another number of cells than the first line"),
        (["contributor,rate,residence", "ann,0.1,\x1b[2J"], "tax.csv:2: residence: '\\x1b[2J' is not accepted"),
    ],
)
def test_what_is_refused(lines, said, tmp_path):
    with pytest.raises(UserError) as refused:
        read_taxes(table(tmp_path, *lines), NAMES)
    assert said in str(refused.value)
