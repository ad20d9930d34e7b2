"""How much follows merit: the closed forms, by hand."""

from dataclasses import replace
from decimal import Decimal
from math import inf, nan

import numpy as np
import pytest

from diffcredit.credit.verdicts import Tested as Result
from diffcredit.payout.reliability import followed, signal_part

from .test_merit import measured, policy

CREDITS = measured([1.0, 0.5, 0.0, -0.5], 0.2)


def credits(**changes):
    return replace(CREDITS, **changes)


def shown(correlation):
    return credits(diagnostics={"predicted_correlation": correlation})


def result(score=0.6, low=0.3, high=0.8, ceiling=0.8):
    return Result(score, low, high, ceiling, 40, 3)


def test_a_stated_part_is_taken_as_it_is():
    for found in (result(), None, result(low=-1)):
        assert followed(policy(r="0.125"), shown(0.9), found).r == Decimal("0.125")


@pytest.mark.parametrize(
    ("correlation", "test", "most", "r"),
    [
        (0.9, result(0.6, ceiling=0.8), "1", "0.455"),  # 0.81 · 0.5625 = 0.455625, rounded down
        (0.9, result(0.6, ceiling=None), "1", "0.291"),  # 0.81 · 0.36 = 0.2916
        (0.9, result(0.6, ceiling=-0.1), "1", "0.291"),
        (0.9, result(0.9, ceiling=0.8), "1", "0.810"),  # at most what could be reached
        (1.0, result(0.8, ceiling=0.8), "1", "1.000"),
        (1.0, result(0.8, ceiling=0.8), "0.5", "0.5"),
        (2.0, result(0.8, ceiling=0.8), "1", "1.000"),
        (-0.5, result(0.8, ceiling=0.8), "1", "0.000"),
        (0.9, result(low=0.0), "1", "0"),
        (0.9, result(low=-0.1), "1", "0"),
        (0.9, result(low=nan), "1", "0"),
        (0.9, None, "1", "0"),
    ],
)
def test_signal_times_test(correlation, test, most, r):
    found = followed(policy(r="reliability", r_at_most=most), shown(correlation), test)
    assert found.r == Decimal(r)
    assert found.signal == pytest.approx(min(max(correlation, 0), 1) ** 2)
    assert found.words.endswith(".")
    assert ("at most" in found.words) == (most == "0.5")


def test_the_cap_is_one_half_unless_stated():
    assert followed(policy(r="reliability"), shown(1.0), result(0.8)).r == Decimal("0.5")


def test_the_part_of_the_variance_that_an_estimate_shows():
    assert signal_part(shown(0.5)) == 0.25
    values, influence = np.array([0.0, 2.0]), np.array([[0.5, 0.0, 9.0, 9.0], [0.0, 0.5, 9.0, 9.0]])
    plain = credits(diagnostics={}, values=values, influence=influence, bias=np.zeros(2))
    # s² = 1, V = ¼; the errors of F(∅) and F(N) are everybody's alike
    assert signal_part(plain) == 0.75
    assert signal_part(replace(plain, bias=np.array([0.5, 0.5]))) == pytest.approx(1 / 1.5)
    assert signal_part(replace(plain, influence=4 * influence)) == 0.0
    assert signal_part(replace(plain, influence=np.full_like(influence, inf))) == 0.0
    assert signal_part(replace(plain, values=np.ones(2))) == 0.0


def test_the_estimate_shows_more_with_less_noise():
    found = [signal_part(measured([1.0, 0.5, 0.0, -0.5], noise, method="kernelshap")) for noise in (0.01, 0.5, 20.0)]
    assert found[0] > 0.99
    assert found == sorted(found, reverse=True)
    assert found[2] < 0.5
