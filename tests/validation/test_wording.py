import math

import pytest

from diffcredit.validation.presentation.wording import in_words, worded
from diffcredit.validation.statistics.records import Estimate


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (-0.614, ".2f", "−0.61"),
        (-0.004, ".2f", "0.00"),
        (-0.004, "+.2f", "0.00"),
        (0.5, "+.2f", "+0.50"),
        (-1.5e-07, ".3g", "−1.5e−07"),
        (-math.inf, ".2f", "−inf"),
        (math.nan, ".2f", "nan"),
    ],
)
def test_numbers_have_a_true_minus_sign(value, form, text):
    assert worded(value, form) == text


def test_an_interval_is_said_where_there_is_one():
    assert in_words(Estimate(0.614, 0.52, 0.6799)) == "0.61 (0.52 to 0.68)"
    assert in_words(Estimate(-0.614, -0.6799, -0.52)) == "−0.61 (−0.68 to −0.52)"
    assert in_words(Estimate(0.6144, 0.52, 1.0), ".3g", "95 % interval ") == "0.614 (95 % interval 0.52 to 1)"
    assert in_words(Estimate(-0.5)) == "−0.50"
    assert in_words(Estimate(0.5, -float("inf"), 1.0)) == "0.50"
