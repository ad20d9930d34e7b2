"""How sure amounts are, against errors drawn here and paid one by one in whole coins, and over simulated studies."""

import itertools
from dataclasses import replace
from decimal import Decimal
from math import inf

import numpy as np
import pytest
from scipy.stats import t

from diffcredit.payout.certainty import certainty, overtaken
from diffcredit.payout.earnings import earnings, exact
from diffcredit.payout.merit import Contributors, merits_of

from .test_merit import alone, measured, policy

POOL = 10_000_000  # coins: so many that rounding to one changes nothing


def credits(values, influence, bias=0.0, degrees=inf, **changes):
    """Credits that sum to F(all) − F(reference), with these errors."""
    n = len(values)
    values, made = np.array(values, dtype=float), measured([0.0] * n)
    full = float(values.sum())
    influence = np.asarray(influence, dtype=float)
    numbers = {"values": values, "influence": influence, "bias": np.full(n, bias), "degrees": degrees}
    return replace(made, **numbers, empty=0.0, full=full, **changes)


def correlated(n, deviation, seed=0):
    """(n, n + 2): influences by which errors of the deviation are correlated, and two parts that all share."""
    random = np.random.default_rng(seed)
    mixing = np.eye(n) + 0.4 * random.normal(size=(n, n))
    mixing *= deviation / np.sqrt((mixing**2).sum(axis=1, keepdims=True))
    return np.hstack([mixing, np.full((n, 2), 0.1 * deviation)])


def simulated(made, count, seed):
    """(count, n): errors by the covariance, drawn by another way than the product's: a Cholesky factor."""
    random = np.random.default_rng(seed)
    covariance = made.influence @ made.influence.T
    errors = random.multivariate_normal(np.zeros(len(covariance)), covariance, count, method="cholesky")
    if np.isfinite(made.degrees):
        errors /= np.sqrt(random.chisquare(made.degrees, (count, 1)) / made.degrees)
    return errors


def paid(stated, people, values, sign=1, cut=None, pool=POOL):
    """Whole coins by credits, as a payout pays them."""
    merits = people.sums @ np.maximum(sign * values - (min(sign * values) if stated.merit == "least" else 0), 0)
    merits = np.where(cut, 0, merits) if cut is not None else merits
    coins = Decimal(1)
    found = earnings(
        pool,
        stated.r,
        people.fixed_weights(stated.fixed),
        exact(merits),
        people.names,
        floor=int(stated.floor / coins),
        cap=None if stated.cap is None else int(stated.cap / coins),
        cut=[] if cut is None else list(cut),
    )
    return np.array(found.amounts, dtype=float)


def sure(made, people, stated, sign=1, cut=None):
    cut = np.zeros(len(people.names), dtype=bool) if cut is None else np.array(cut)
    return certainty(made, people, stated, sign, stated.r, Decimal(POOL), cut)


LOTS = Contributors((*"abc",), (0, 0, 1, 1, 2, 2), (9, 6, 3), (2, 1, 1))


@pytest.mark.parametrize(
    ("changes", "people", "sign", "degrees"),
    [
        ({}, alone(6), 1, inf),
        ({"r": "1"}, alone(6), 1, 5),
        ({"r": "0.3", "fixed": "images"}, LOTS, 1, 12),
        ({"fixed": "lots", "merit": "least"}, LOTS, 1, inf),
        ({"merit": "least"}, alone(6), -1, 20),
        ({"floor": "1200000", "cap": "2500000", "r": "0.9"}, alone(6), 1, 20),
    ],
)
def test_intervals_are_those_of_draws_paid_in_coins(changes, people, sign, degrees):
    stated = policy(**changes)
    made = credits([4.0, 3.0, 2.0, 1.0, 0.5, -0.5], correlated(6, 0.6), degrees=degrees)
    made = replace(made, values=sign * made.values, full=sign * made.full)
    found = sure(made, people, stated, sign)
    point = paid(stated, people, made.values, sign)
    drawn = np.array([paid(stated, people, made.values + error, sign) for error in simulated(made, 1500, seed=7)])
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    # A tail's end is known to a twelfth of a standard deviation from so many draws, of which an interval has four.
    assert found.low == pytest.approx(np.minimum(low, point), abs=0.1 * (high - low).max())
    assert found.high == pytest.approx(np.maximum(high, point), abs=0.1 * (high - low).max())
    assert (found.low <= point + 3).all()
    assert (found.high >= point - 3).all()
    inside = ((drawn >= found.low - 3) & (drawn <= found.high + 3)).mean(axis=0)
    assert (inside >= 0.92).all()
    kept = (drawn > drawn.min(axis=0) + 3) & (drawn < drawn.max(axis=0) - 3)
    assert (inside[kept.mean(axis=0) > 0.99] <= 0.98).all()  # who is often at a bound is within more often


def test_intervals_by_hand():
    """Of two with r = 1, one's merit is known: the other's amount is a quantile of the normal distribution."""
    made = credits([1.0, 3.0], [[0, 0, 0, 0], [0.5, 0, 0, 0]])
    found = sure(made, alone(2), policy(r="1"))
    ends = [POOL * (3 + side * 1.96 * 0.5) / (4 + side * 1.96 * 0.5) for side in (-1, 1)]
    assert [found.low[1], found.high[1]] == pytest.approx(ends, rel=0.01)
    assert [found.high[0], found.low[0]] == pytest.approx([POOL - end for end in ends], rel=0.03)


def test_shrunken_credits_are_drawn_as_widely_as_their_intervals():
    """With bias an interval of credits is wider than 1.96 deviations, and the amount's is in proportion."""
    made = credits([2.0, 2.0, 2.0, 2.0], 0.05 * np.eye(4, 6), bias=0.1)
    assert made.efficient
    found = sure(made, alone(4), policy(r="1"))
    half = made.high - made.values
    # a quarter of the pool, and by small errors its share moves by those of the contrast, which three fourths remain of
    errors = half / 1.96
    contrast = np.sqrt(0.75 * 0.05**2 + 0.1**2) / np.sqrt(0.05**2 + 0.1**2)
    expected = POOL * errors / 8.0 * contrast * 1.96
    assert (found.high - found.low) / 2 == pytest.approx(expected, rel=0.08)


def test_without_noise_nothing_is_unsure():
    """Not even where nobody has merit but for the last digits of credits, which the payout itself ignores."""
    for values in ([3.0, 1.0, -1.0], [0.0, 1e-17, -4e-17], [2.0, 2.0 + 4e-16, 2.0 - 4e-16]):
        for rule in ("help", "least"):
            made = replace(credits(values, np.zeros((3, 5))), empty=40.0, full=40.0 + sum(values))
            stated = policy(merit=rule)
            merits = exact(merits_of(made, alone(3), stated, 1))
            coins = earnings(POOL, stated.r, (1, 1, 1), merits, alone(3).names).amounts
            found = sure(made, alone(3), stated)
            assert found.low == pytest.approx(coins, abs=3)
            assert found.high == pytest.approx(coins, abs=3)
            assert found.moved == 0
    assert overtaken(credits([3.0, 1.0, -1.0], np.zeros((3, 5))), alone(3), 1).tolist()[:2] == [0, 0]


def test_nothing_follows_noise_where_nothing_follows_merit():
    made = credits([3.0, 1.0, -1.0], correlated(3, 1.0))
    found = sure(made, alone(3), policy(r="0"))
    assert found.low == pytest.approx([POOL / 3] * 3)
    assert found.high == pytest.approx([POOL / 3] * 3)
    assert found.moved == 0


@pytest.mark.parametrize("changes", [{}, {"floor": "1000", "cap": "9000000"}])
def test_noise_that_is_not_known_leaves_everything_possible(changes):
    made = credits([3.0, 1.0, -1.0], np.full((3, 5), inf), degrees=1)
    stated = policy(r="0.4", **changes)
    found = sure(made, alone(3), stated)
    values = np.random.default_rng(0).normal(size=(300, 3)) * 10 ** np.random.default_rng(1).uniform(-3, 3, (300, 3))
    for draw in values:
        amounts = paid(stated, alone(3), draw)
        assert (found.low - 2 <= amounts).all()
        assert (amounts <= found.high + 2).all()
    assert found.overtaken.tolist()[:2] == [0.5, 0.5]
    if changes:
        return
    assert found.low == pytest.approx([0.6 * POOL / 3] * 3)
    assert found.high == pytest.approx([0.6 * POOL / 3 + 0.4 * POOL] * 3)
    assert found.moved == pytest.approx(0.4 * POOL)  # all that follows merit
    alone_kept = sure(made, alone(3), stated, cut=[True, False, True])
    assert alone_kept.low == pytest.approx([0, POOL, 0])
    assert alone_kept.high == pytest.approx([0, POOL, 0])


def test_who_is_cut_off_stays_so_in_every_draw():
    made = credits([3.0, 1.0, -0.5], correlated(3, 0.5))
    cut = [False, False, True]
    found = sure(made, alone(3), policy(r="1"), cut=cut)
    drawn = np.array([paid(policy(r="1"), alone(3), made.values + e, cut=cut) for e in simulated(made, 1500, 3)])
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    assert (found.low[2], found.high[2]) == (0, 0)
    assert found.low == pytest.approx(low, abs=0.1 * POOL * 0.5)
    assert found.low[:2] == pytest.approx(low[:2], abs=0.1 * (high - low).max())
    assert found.high[:2] == pytest.approx(high[:2], abs=0.1 * (high - low).max())


@pytest.mark.parametrize("degrees", [inf, 4])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("people", [alone(6), LOTS])
def test_overtaken_is_how_often_the_next_is_better(people, sign, degrees):
    made = credits(sign * np.array([1.0, 0.8, 0.75, 0.3, 0.2, -0.5]), correlated(6, 0.4), degrees=degrees)
    found = overtaken(made, people, sign)
    truths = sign * (made.values - simulated(made, 20_000, seed=5)) @ people.sums.T
    order = np.argsort(-sign * (people.sums @ made.values))
    for first, second in itertools.pairwise(order):
        assert found[first] == pytest.approx((truths[:, second] > truths[:, first]).mean(), abs=0.014)
    assert np.isnan(found[order[-1]])


@pytest.mark.parametrize("n", [2, 3, 12])
def test_overtaken_knows_that_biases_sum_to_nothing(n):
    """Where one of few credits is too small, the others are too large: the more so the fewer they are."""
    values = np.linspace(0.4, 0.0, n)
    made = credits(values, 0.1 * np.eye(n, n + 2), bias=0.3)
    random = np.random.default_rng(0)
    biases = random.normal(size=(40_000, n))
    biases -= biases.mean(axis=1, keepdims=True)
    biases *= 0.3 / biases.std()
    truths = values - biases - 0.1 * random.normal(size=(40_000, n))
    assert overtaken(made, alone(n), 1)[0] == pytest.approx((truths[:, 1] > truths[:, 0]).mean(), abs=0.012)


def test_overtaken_by_hand():
    made = credits([1.0, 0.0], [[0.5, 0, 9, 9], [0, 0.5, 9, 9]], degrees=3)
    assert overtaken(made, alone(2), 1)[0] == pytest.approx(t.sf(1 / 0.5**0.5, 3))  # what all share does not count
    equal = credits([1.0, 1.0], [[0.5, 0, 0, 0], [0, 0.5, 0, 0]])
    assert overtaken(equal, alone(2), 1)[0] == pytest.approx(0.5)


@pytest.mark.parametrize(("deviation", "changes"), [(0.05, {}), (0.3, {"r": "1"}), (0.3, {"merit": "least"})])
def test_moved_is_what_differs_between_two_runs(deviation, changes):
    stated = policy(**changes)
    made = credits([4.0, 3.0, 2.0, 1.0, 0.5], correlated(5, deviation))
    found = sure(made, alone(5), stated).moved
    one, other = (made.values + simulated(made, 1200, seed) for seed in (1, 2))
    differences = [
        np.abs(paid(stated, alone(5), a) - paid(stated, alone(5), b)).sum() / 2 for a, b in zip(one, other, strict=True)
    ]
    error = np.std(differences) / len(differences) ** 0.5
    assert found == pytest.approx(np.mean(differences), abs=5 * error + 0.03 * np.mean(differences))


def covered(studies, n, noise, shrink, stated, seed=0, degrees=inf):
    """The part of true amounts that lie in their intervals, over simulated studies of known noise. With ``shrink``
    each estimate is drawn towards the average as far as gives the least error, as the default method does."""
    random = np.random.default_rng(seed)
    inside, people = [], alone(n)
    for study in range(studies):
        truth = 2.0 + random.normal(size=n)
        influence = correlated(n, noise, seed=study)
        errors = influence @ random.normal(size=n + 2)
        estimate, bias = truth + errors, 0.0
        if shrink:
            kept = 1 / (1 + noise**2)
            level = estimate.mean()
            estimate = level + kept * (estimate - level)
            average = np.full((n, n), 1 / n)
            influence = (kept * (np.eye(n) - average) + average) @ influence
            bias = (1 - kept) * np.sqrt((n - 1) / n)
        made = credits(estimate, influence, bias=bias, degrees=degrees)
        found = certainty(made, people, stated, 1, stated.r, Decimal(POOL), np.zeros(n, dtype=bool))
        amounts = paid(stated, people, truth)
        inside.append((found.low - 3 <= amounts) & (amounts <= found.high + 3))
    return float(np.mean(inside))


@pytest.mark.parametrize(
    ("n", "noise", "shrink", "changes"),
    [(6, 0.5, False, {}), (6, 0.5, True, {}), (12, 1.0, True, {}), (12, 0.5, True, {"merit": "least"})],
)
def test_intervals_hold_the_amounts_by_the_true_credits(n, noise, shrink, changes):
    """In 93 to 98 of 100: in more than 95 where an amount cannot fall below the fixed part, and where shrunken credits'
    intervals are made for the worst bias of its size."""
    assert 0.93 <= covered(80, n, noise, shrink, policy(**changes)) <= 0.985
