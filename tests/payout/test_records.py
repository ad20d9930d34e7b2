"""A payout as the ledger keeps it: every field there and back, and every fault in it refused."""

import json
from dataclasses import fields, replace
from decimal import Decimal

import pytest
from tests.report.made_up import HOSTILE
from tests.report.made_up_payout import payout, row, three

from diffcredit.errors import DiffcreditError
from diffcredit.payout.records import AMOUNTS, Payout, Row


def stored(made=None):
    """The content as any ledger returns it."""
    return json.loads(json.dumps((made or payout()).content))


def test_there_and_back():
    texts = dict.fromkeys(("payer", "model", "licence", "objections"), HOSTILE[0])
    for made in (
        payout(),
        payout(lot=5, rows=tuple(replace(each, lots=2, accounts=HOSTILE) for each in three())),
        payout(texts=texts, despite=HOSTILE[2], title=HOSTILE[3], before_evaluations=False, finished=False),
        payout((row(HOSTILE[5], amount="0.3", opening="0.00", carried="0.1", paid="0.2"),), pool=Decimal("0.30")),
    ):
        assert Payout.of(stored(made)) == made
        assert Payout.of(stored(made)).content == made.content
    assert Payout.of(stored()).row("Ben").carried == Decimal("220.00")
    assert str(Payout.of(stored()).rows[0].amount) == "420.00"  # with all its digits
    with pytest.raises(KeyError, match="Zoe"):
        payout().row("Zoe")


WRONG = {str: 5, int: "5", float: "5", bool: "yes", Decimal: "five", Decimal | None: "five"}


def wrong_for(field):
    """A value of another type than the field's."""
    if field.type in WRONG:
        return WRONG[field.type]
    return 5 if "None" not in str(field.type) else [[]]


@pytest.mark.parametrize("name", [field.name for field in fields(Payout)])
def test_a_payout_s_faults(name):
    (field,) = (each for each in fields(Payout) if each.name == name)
    content = stored()
    missing = {key: value for key, value in content.items() if key != name}
    with pytest.raises(DiffcreditError, match=f"a payout in the ledger cannot be read: {name}: Field required"):
        Payout.of(missing)
    with pytest.raises(DiffcreditError, match=f"cannot be read: {name}"):
        Payout.of(content | {name: wrong_for(field)})


@pytest.mark.parametrize("name", [field.name for field in fields(Row)])
def test_a_row_s_faults(name):
    (field,) = (each for each in fields(Row) if each.name == name)
    content = stored()
    whole = content["rows"][1]
    for broken in (
        {key: value for key, value in whole.items() if key != name},
        whole | {name: wrong_for(field)},
        whole | {f"{name}_": 1},
    ):
        with pytest.raises(DiffcreditError, match=rf"a payout in the ledger cannot be read: rows\.1\.{name}"):
            Payout.of(content | {"rows": [content["rows"][0], broken]})


@pytest.mark.parametrize("name", AMOUNTS)
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-0.01", "1 000", "", None, True, [1]])
def test_an_amount_s_faults(name, value):
    content = stored()
    content["rows"][0][name] = value
    with pytest.raises(DiffcreditError, match="a payout in the ledger cannot be read: "):
        Payout.of(content)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 2}, "format 2, expected 1"),
        ({"format": "1"}, "format '1', expected 1"),
        ({"extra": 1}, "extra: Unexpected keyword argument"),
        ({"pool": "1000.01"}, "the amounts do not sum to the pool"),
        ({"rows": []}, "the amounts do not sum to the pool"),
        ({"rows": {}}, "rows: "),
    ],
)
def test_other_faults(changes, said):
    with pytest.raises(DiffcreditError, match=said):
        Payout.of(stored() | changes)


@pytest.mark.parametrize(
    ("name", "value"), [("amount", "420.01"), ("paid", "427.24"), ("opening", "0"), ("carried", "5")]
)
def test_sums_that_are_wrong(name, value):
    content = stored()
    content["rows"][0][name] = value
    with pytest.raises(DiffcreditError, match="opening balance and amount are not what is paid and carried forward"):
        Payout.of(content)


def test_what_is_no_content():
    for content in ({}, {"format": 1}):
        with pytest.raises(DiffcreditError, match="cannot be read: "):
            Payout.of(content)
