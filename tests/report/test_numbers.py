import math

import pytest

from diffcredit.report.numbers import (
    credit_decimals,
    duration,
    number,
    percent,
    plain,
    share_decimals,
    share_span,
    span,
    typical_half_width,
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


def test_decimals_show_two_digits_of_the_typical_half_width():
    assert credit_decimals(table((1.0, 2.0), half_width=0.034)) == 3
    assert credit_decimals(table((1000.0, 2000.0), half_width=340.0)) == 0


def test_without_intervals_the_spread_of_credits_decides():
    unknown = table((1.00, 1.05), low=(math.nan,) * 2, high=(math.nan,) * 2)
    assert typical_half_width(unknown.low, unknown.high) is None
    assert credit_decimals(unknown) == 3
    assert credit_decimals(table((0.0, 0.0), half_width=0.0, empty=0.0, full=0.0)) == 0


def test_rounding_errors_are_no_spread():
    assert credit_decimals(table((1e-13, -1e-13), half_width=6e-13, empty=0.5, full=0.5)) == 3


def test_equal_values_have_no_width():
    # what an estimate from values that are all 0 says, such as the share of a class that nobody's images show
    assert credit_decimals(table((0.0, 0.0), half_width=2.3e-101, empty=0.0, full=0.0)) == 0
    assert credit_decimals(table((0.0, 0.0), half_width=0.034, empty=0.0, full=0.0)) == 3


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (4.25, "4.25 s"),
        (59.99, "59.99 s"),
        (725, "12 min 5 s"),
        (7260, "2 h 1 min"),
        (187200, "2 d 4 h"),
        (3600, "1 h"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_percent():
    assert percent(0.1234, 1) == "12.3\u202f%"
