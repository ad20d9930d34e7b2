"""Policies: numbers as they were written, and the terms that decide amounts."""

from decimal import Decimal, localcontext

import pytest
import yaml

from diffcredit.errors import UserError
from diffcredit.study.policy import PolicySection, decimal_of, money, read_policy

STATED = {"property": "quality", "fixed": "equal", "merit": "help", "r": 0.3, "currency": "EUR"}


def policy(**changes):
    return PolicySection.model_validate(STATED | changes)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0.1, "0.1"),
        ("0.1", "0.1"),
        (" 1250.00 ", "1250.00"),
        ("1E+3", "1000"),
        (10**12, "1000000000000"),
        ("0.30000000000000004", "0.30000000000000004"),
        (Decimal("2.50"), "2.50"),
    ],
)
def test_numbers_are_as_they_were_written(value, number):
    with localcontext(prec=2):
        assert str(decimal_of(value)) == number


@pytest.mark.parametrize(
    "value", [True, None, [1], {}, "1,000", "nan", "sNaN", "inf", float("inf"), "1e30", "1e-31", b"1", "", "0x10", 1j]
)
def test_what_is_no_number(value):
    with pytest.raises(ValueError, match="number"):
        decimal_of(value)


def test_money():
    with localcontext(prec=2):
        assert money("1000000000000") == Decimal(10) ** 12
        assert money("0.0001") == Decimal("0.0001")
    for value, said in (("1000000000000.01", "from 0 to"), (-0.01, "from 0 to"), ("0.00005", "multiples of 0.0001")):
        with pytest.raises(ValueError, match=said):
            money(value)


def test_terms_are_all_but_the_texts_however_they_are_written():
    first = policy(r="0.30", floor="5.00", rounding="0.010", statement={"payer": "Acme"})
    assert first.terms == policy(r=0.3, floor=5).terms
    assert (first.terms["r"], first.terms["floor"], first.terms["rounding"]) == ("0.3", "5", "0.01")
    assert "statement" not in first.terms
    assert {"property", "mix", "direction", "reference", "r", "cap", "verdict"} < set(first.terms)
    mixed = {key: value for key, value in STATED.items() if key != "property"} | {"mix": {"b": "2.0", "a": -500}}
    found = PolicySection.model_validate(mixed)
    assert found.terms["mix"] == {"b": "2", "a": "-500"}
    assert found.weights == {"b": Decimal(2), "a": Decimal(-500)}
    assert policy().weights == {"quality": Decimal(1)}
    for changes in ({"r": 0.4}, {"cap": 5}, {"negatives": "cut"}, {"verdict": "pay by it"}, {"direction": "lower"}):
        assert policy(**changes).terms != policy().terms


def test_limits_that_fit():
    found = policy(floor=5, cap=5, minimum="0.05", pool=10, rounding="0.05", r=1)
    assert (found.floor, found.cap, found.r) == (5, 5, 1)
    assert policy(r=0).r == 0
    assert policy(r="reliability", r_at_most=1).r_at_most == 1
    for key in ("pool", "floor", "cap", "minimum"):
        with pytest.raises(UserError, match=rf"{key}: 100\.01 is no multiple of rounding, 0\.05"):
            policy(**{"rounding": "0.05", key: "100.01"})


def test_a_file_of_a_policy(tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(STATED | {"r": "reliability"}))
    assert read_policy(file) == policy(r="reliability")
    file.write_text("property: quality\nr: 1e-1\nfixed: equal\nmerit: help\ncurrency: EUR\n")
    assert read_policy(file).r == Decimal("0.1")
