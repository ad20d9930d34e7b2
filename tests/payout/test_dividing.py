"""Dividing coins: against brute force, an exact λ by stretches, and what must hold for every division."""

from fractions import Fraction
from math import floor

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from diffcredit.payout.dividing import divide, within_bounds

from .oracles import clipped, fairest, rounded_to_a_coin

NAMES = st.integers(1, 4).flatmap(
    lambda n: st.lists(st.text("abcß漢🙂", min_size=1, max_size=3), min_size=n, max_size=n, unique=True)
)
WEIGHTS = st.one_of(st.integers(0, 9), st.fractions(0, 3, max_denominator=12))


def named(n):
    return [f"{i:05d}" for i in range(n)]


@given(st.data())
@settings(max_examples=150)
def test_no_other_division_is_nearer(data):
    names = data.draw(NAMES)
    weights = data.draw(st.lists(WEIGHTS, min_size=len(names), max_size=len(names)).filter(any))
    total = data.draw(st.integers(0, 9))
    assert tuple(divide(total, weights, names)) == fairest(total, weights, names)


@given(
    st.integers(1, 10**11),
    st.lists(st.one_of(st.integers(0, 10**6), st.fractions(0, 1, max_denominator=10**9)), min_size=1, max_size=60),
)
def test_every_coin_is_given_once_and_more_weight_never_gets_less(total, weights):
    assume(any(weights))
    names = named(len(weights))
    amounts = divide(total, weights, names)
    assert sum(amounts) == total
    assert min(amounts) >= 0
    quotas = [Fraction(total) * weight / sum(weights) for weight in weights]
    assert rounded_to_a_coin(quotas, amounts)
    ordered = sorted(zip(weights, amounts, strict=True))
    assert [amount for _, amount in ordered] == sorted(amounts)
    by_weight = {}
    for name, weight, amount in zip(names, weights, amounts, strict=True):
        by_weight.setdefault(weight, []).append((name, amount))
    for equals in by_weight.values():
        given_ = [amount for _, amount in sorted(equals)]
        assert given_ == sorted(given_, reverse=True)  # the odd coins go to the names that sort first
        assert given_[0] - given_[-1] <= 1


@pytest.mark.parametrize("total", [1, 7, 10**11])
def test_two_thousand_contributors(total):
    weights = [Fraction(1 + i % 7, 1 + i % 11) for i in range(2000)]
    amounts = divide(total, weights, named(2000))
    assert sum(amounts) == total
    whole = sum(weights)
    assert rounded_to_a_coin([Fraction(total) * weight / whole for weight in weights], amounts)


@given(st.data())
@settings(max_examples=300)
def test_bounds_are_kept_by_the_one_scale_that_gives_the_sum(data):
    n = data.draw(st.integers(1, 7))
    total = data.draw(st.integers(1, 2000))
    wanted = data.draw(st.lists(st.integers(0, 300), min_size=n, max_size=n))
    low = data.draw(st.integers(0, total // n))
    high = data.draw(st.integers(-(-total // n), total))
    names = named(n)
    amounts = within_bounds(total, wanted, names, floor=low, cap=high)
    assert sum(amounts) == total
    assert all(low <= amount <= high for amount in amounts)
    assert rounded_to_a_coin(clipped(total, wanted, low, high), amounts)
    pairs = sorted(zip(wanted, amounts, strict=True))
    assert [amount for _, amount in pairs] == sorted(amounts)


@example(total=100, wanted=[60, 30, 10], low=20, high=50)
@example(total=10, wanted=[10, 0, 0], low=0, high=4)
@example(total=12, wanted=[0, 0, 0], low=0, high=5)
@given(
    total=st.integers(1, 10**11),
    wanted=st.lists(st.integers(0, 10**11), min_size=1, max_size=40),
    low=st.integers(0, 10**9),
    high=st.integers(0, 10**11),
)
def test_bounds_of_any_size(total, wanted, low, high):
    n = len(wanted)
    low, high = min(low, total // n), max(high, -(-total // n))
    amounts = within_bounds(total, wanted, named(n), floor=low, cap=high)
    assert sum(amounts) == total
    assert all(low <= amount <= high for amount in amounts)
    assert rounded_to_a_coin(clipped(total, wanted, low, high), amounts)


def test_without_bounds_nothing_changes():
    assert within_bounds(60, [10, 20, 30], ["c", "b", "a"]) == [10, 20, 30]


def test_bounds_by_hand():
    # λ = 1.5: 45 and 15 between the bounds, and 60 cut to 40
    assert within_bounds(100, [40, 30, 10], named(3), floor=0, cap=40) == [40, 40, 20]
    assert within_bounds(10, [10, 0, 0], named(3), cap=4) == [4, 3, 3]
    assert within_bounds(7, [0, 0], named(2), floor=3) == [4, 3]
    # both bounds, which pull against one another
    assert within_bounds(100, [90, 9, 1], named(3), floor=10, cap=60) == [60, 30, 10]


def test_the_order_of_contributors_changes_nothing():
    weights, names = [Fraction(1, 3), 2, 1, 2, Fraction(7, 5)], ["e", "d", "c", "b", "a"]
    for total in range(40):
        forward = dict(zip(names, divide(total, weights, names), strict=True))
        backward = dict(zip(names[::-1], divide(total, weights[::-1], names[::-1]), strict=True))
        assert forward == backward
        if total >= 10:
            wanted = [floor(3 * weight) for weight in weights]
            one = dict(zip(names, within_bounds(total, wanted, names, floor=2, cap=total // 2), strict=True))
            other = within_bounds(total, wanted[::-1], names[::-1], floor=2, cap=total // 2)
            assert one == dict(zip(names[::-1], other, strict=True))
