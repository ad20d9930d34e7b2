from diffcredit.validation.records import Estimate
from diffcredit.validation.wording import in_words


def test_an_interval_is_said_where_there_is_one():
    assert in_words(Estimate(0.614, 0.52, 0.6799)) == "0.61 (0.52 to 0.68)"
    assert in_words(Estimate(-0.5)) == "-0.50"
    assert in_words(Estimate(0.5, -float("inf"), 1.0)) == "0.50"
