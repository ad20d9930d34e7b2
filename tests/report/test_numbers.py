import math

import pytest

from diffcredit.report.numbers import (
    credit_decimals,
    number,
    percent,
    plain,
    share_decimals,
    share_span,
    span,
)

from .made_up import table


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (1234.567, 1, "1,234.6"),
        (-0.5, 2, "−0.50"),
        (-0.001, 2, "0.00"),
        (1.2345e-9, 11, "1.23\u202f×\u202f10⁻⁹"),
        (-4e-13, 11, "0"),
    ],
)
def test_number(value, decimals, text):
    assert number(value, decimals) == text


UNKNOWN = {"low": (math.nan,) * 2, "high": (math.nan,) * 2}
ZERO = {"empty": 0.0, "full": 0.0}


@pytest.mark.parametrize(
    ("credit", "changes", "decimals"),
    [
        ((1.0, 2.0), {"half_width": 0.034}, 3),  # two digits of the typical half-width
        ((1000.0, 2000.0), {"half_width": 340.0}, 0),
        ((1.00, 1.05), UNKNOWN, 3),  # without intervals the spread of the credits decides
        ((0.0, 0.0), {"half_width": 0.0} | ZERO, 0),
        ((1e-13, -1e-13), {"half_width": 6e-13, "empty": 0.5, "full": 0.5}, 3),  # rounding errors are no spread
        # an estimate from values that are all 0, such as the share of a class that nobody's images show
        ((0.0, 0.0), {"half_width": 2.3e-101} | ZERO, 0),
        ((0.0, 0.0), {"half_width": 0.034} | ZERO, 3),
    ],
)
def test_decimals_are_those_that_intervals_support(credit, changes, decimals):
    assert credit_decimals(table(credit, **changes)) == decimals


def test_shares_have_as_many_decimals_as_their_intervals_support():
    # of a total of 10: ± 4.5 %, ± 45 % and ± 0.0001 %
    assert [share_decimals(table((4.0, 6.0), half_width=w)) for w in (0.45, 4.5, 1e-5)] == [1, 0, 3]
    assert share_decimals(table((1.0, -1.0), full=10.0)) == 1


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(2, 5, "2–5"), (-3, 5, "−3 to 5"), (-5, -3, "−5 to −3"), (-0.2, 5, "0–5"), (1, 1, "1–1")],
)
def test_span(low, high, text):
    assert span(low, high) == text


@pytest.mark.parametrize(
    ("low", "high", "decimals", "text"),
    [
        (0.0812, 0.1663, 1, "8–17"),
        (0.0812, 0.1663, 2, "8.1–16.6"),
        (-0.5, 0.5, 0, "−50 to 50"),
        (-math.inf, math.inf, 1, "not bounded"),
    ],
)
def test_share_span(low, high, decimals, text):
    assert share_span(low, high, decimals) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "—"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (0.6, "0.6"),
        (100.0, "100"),
        (45210.2, "45,210"),
        (0.0, "0"),
        (math.nan, "not known"),
        ("x", "x"),
    ],
)
def test_plain(value, text):
    assert plain(value) == text


def test_percent():
    assert percent(0.1234, 1) == "12.3\u202f%"
