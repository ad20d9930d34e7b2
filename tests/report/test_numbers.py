import math

import pytest

from diffcredit.report.numbers import credit_decimals, duration, number, percent, plain, typical_half_width

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
    assert typical_half_width(unknown) is None
    assert credit_decimals(unknown) == 3
    assert credit_decimals(table((0.0, 0.0), half_width=0.0, empty=0.0, full=0.0)) == 0


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
