"""Merit and standing against sums by hand and the credits' own comparison."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffcredit.coalitions import make_design
from diffcredit.credit import Credits, estimate
from diffcredit.payout.merit import Contributors, Standing, cut_off, merit, merits_of, standing
from diffcredit.study.policy import PolicySection


def policy(**changes):
    stated = {"property": "quality", "fixed": "equal", "merit": "help", "r": "0.5", "currency": "EUR"}
    return PolicySection.model_validate(stated | changes)


def alone(n):
    return Contributors.of({f"{i:03d}": 1 for i in range(n)}, {})


def measured(weights, noise=0.0, offset=0.0, seed=0, evaluations=60, **given_) -> Credits:
    """Credits of an additive game, estimated from evaluations with normal noise."""
    n, random = len(weights), np.random.default_rng(seed)
    coalitions = make_design("uniform", seed).draw(n, 0, evaluations)
    values = offset + coalitions @ np.array(weights) + noise * random.normal(size=len(coalitions))
    return estimate(coalitions, values, empty=offset, full=offset + sum(weights), **given_)


def test_merit_by_hand():
    values = np.array([3.0, -1.0, 0.5])
    assert merit(values, policy(), 1).tolist() == [3.0, 0.0, 0.5]
    assert merit(values, policy(), -1).tolist() == [0.0, 1.0, 0.0]
    assert merit(values, policy(merit="least"), 1).tolist() == [4.0, 0.0, 1.5]
    assert merit(values, policy(merit="least"), -1).tolist() == [0.0, 4.0, 2.5]
    draws = np.stack([values, -values])
    assert merit(draws, policy(merit="least"), 1).tolist() == [[4.0, 0.0, 1.5], [0.0, 4.0, 2.5]]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.sampled_from(["help", "least"]))
def test_merit_has_the_order_of_help(values, rule):
    found = merit(np.array(values), policy(merit=rule), 1)
    assert found.min() >= 0
    assert [m for _, m in sorted(zip(values, found, strict=True))] == sorted(found)


@pytest.mark.parametrize("rule", ["help", "least"])
@pytest.mark.parametrize("sign", [1, -1])
def test_no_money_follows_the_last_digits_of_equal_credits(rule, sign):
    """Four who are equal, at a property whose level is 45: sums of floating-point numbers differ by 1e-17."""
    credits = measured([0.1] * 4, offset=45.3, evaluations=14)
    credits = replace(credits, values=0.1 * (rule == "least") + np.array([0.0, 1.4e-17, -4e-17, 2.8e-17]))
    assert merits_of(credits, alone(4), policy(merit=rule), sign).tolist() == [0, 0, 0, 0]
    assert standing(credits, alone(4), sign).rank.tolist() == [1, 1, 1, 1]
    one_better = replace(credits, values=credits.values + sign * np.array([0.2, 0, 0, 0]))
    assert merits_of(one_better, alone(4), policy(merit="least"), sign).round(12).tolist() == [0.2, 0, 0, 0]
    assert standing(one_better, alone(4), sign).rank.tolist() == [1, 2, 2, 2]


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("sign", [1, -1])
def test_standing_is_what_the_credits_say_themselves(noise, sign):
    credits = measured([1.0, 0.5, 0.25, 0.0, -0.5, 0.3], noise, offset=2.0, seed=3)
    credits = replace(credits, higher_is_better=sign > 0)
    found = standing(credits, alone(6), sign)
    assert found.help == pytest.approx(credits.help())
    low, high = credits.help_intervals()
    assert found.low == pytest.approx(low)
    assert found.high == pytest.approx(high)
    assert found.above == pytest.approx(sign * credits.values)
    ends = sorted([sign * credits.low, sign * credits.high], key=lambda each: each[0])
    assert found.above_low == pytest.approx(ends[0])
    assert found.above_high == pytest.approx(ends[1])
    assert found.rank.tolist() == credits.rank().tolist()
    lows, highs = credits.rank_intervals()
    assert found.rank_low.tolist() == lows.tolist()
    assert found.rank_high.tolist() == highs.tolist()


def test_lots_are_summed_by_contributor():
    whose = {"ada 1": "ada", "ada 2": "ada", "ada rest": "ada"}
    images = {"ada 1": 4, "ada 2": 4, "ada rest": 1, "bob": 7}
    people = Contributors.of(images, whose, 4)
    assert (people.names, people.owner, people.images, people.lots) == (("ada", "bob"), (0, 0, 0, 1), (9, 7), (2, 1))
    assert people.sums.tolist() == [[1, 1, 1, 0], [0, 0, 0, 1]]
    assert [people.fixed_weights(rule) for rule in ("equal", "images", "lots")] == [(1, 1), (9, 7), (2, 1)]
    credits = measured([1.0, 0.5, -0.25, 2.0])
    found = standing(credits, people, 1)
    assert found.above == pytest.approx([1.25, 2.0], abs=1e-6)
    assert found.help == pytest.approx([-0.375, 0.375], abs=1e-6)
    assert merits_of(credits, people, policy(), 1) == pytest.approx([1.5, 2.0], abs=1e-6)
    assert merits_of(credits, people, policy(merit="least"), 1) == pytest.approx([2.0, 2.25], abs=1e-6)
    # the interval of a sum, by the covariance of its terms
    noisy = measured([1.0, 0.5, -0.25, 2.0], 0.5, method="kernelshap")
    found = standing(noisy, people, 1)
    covariance = noisy.influence @ noisy.influence.T
    deviation = covariance[:3, :3].sum() ** 0.5
    half = (found.above_high - found.above_low) / 2
    single = (noisy.high - noisy.low) / 2
    assert half[0] == pytest.approx(single[3] * deviation / covariance[3, 3] ** 0.5)
    assert half[1] == pytest.approx(single[3])
    assert Contributors.of({"b": 3, "a": 2}, {}).lots is None
    assert Contributors.of({"b": 3, "a": 2}, {}).images == (2, 3)


def test_who_surely_makes_the_model_worse_is_cut_off():
    n = 3
    found = Standing(*[np.zeros(n)] * 8, above_high=np.array([-0.1, 0.0, 0.1]))
    assert cut_off(found, policy(negatives="cut")).tolist() == [True, False, False]
    assert cut_off(found, policy()).tolist() == [False, False, False]
    credits = measured([1.0, -0.5, 0.0, 0.4], 0.05, evaluations=200)
    sure = standing(credits, alone(4), 1)
    assert cut_off(sure, policy(negatives="cut")).tolist() == [False, True, False, False]
    assert cut_off(standing(credits, alone(4), -1), policy(negatives="cut")).tolist() == [True, False, False, True]


def test_one_contributor_alone():
    people = Contributors.of({"ada 1": 2, "ada 2": 2}, {"ada 1": "ada", "ada 2": "ada"}, 2)
    found = standing(measured([1.0, 2.0], evaluations=4), people, 1)
    assert (found.help.tolist(), found.rank.tolist()) == ([0.0], [1])
    assert (found.rank_low.tolist(), found.rank_high.tolist()) == ([1], [1])
