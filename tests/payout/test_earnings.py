"""Earnings over random policies: exact sums, bounds, order, and the same coins whoever computes them."""

import decimal
import itertools
import json
import os
import random
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from diffcredit.errors import UserError
from diffcredit.payout.earnings import DIGITS, earnings, exact
from diffcredit.payout.merit import amounts

from .oracles import clipped

PARTS = st.decimals(0, 1, places=3)
MERITS = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))


@st.composite
def policies(draw, most=40):
    """All that :func:`earnings` takes, with bounds that the pool can keep."""
    n = draw(st.integers(2, most))
    each = {"min_size": n, "max_size": n}
    pool = draw(st.integers(1, 10**11))  # coins: 0.01 to 10^9
    weights = draw(st.one_of(st.just([1] * n), st.lists(st.integers(0, 10_000), **each)))
    merits = draw(st.lists(MERITS, **each))
    cut = draw(st.one_of(st.just([False] * n), st.lists(st.booleans(), **each)))
    cut = [gone and not merit for gone, merit in zip(cut, merits, strict=True)]  # who is cut off has no merit
    paid = n - sum(cut)
    assume(paid)
    assume(any(weight for weight, gone in zip(weights, cut, strict=True) if not gone))
    floor = draw(st.one_of(st.just(0), st.integers(0, pool // paid)))
    cap = draw(st.one_of(st.none(), st.integers(max(floor, -(-pool // paid)), pool + 10)))
    names = draw(st.permutations([f"{i:05d}" for i in range(n)]))
    return {
        "pool": pool,
        "r": draw(PARTS),
        "weights": weights,
        "merits": exact(np.array(merits)),
        "names": names,
        "floor": floor,
        "cap": cap,
        "cut": cut,
    }


def by_name(policy, found):
    return {name: parts for name, *parts in zip(policy["names"], found.fixed, found.merit, found.amounts, strict=True)}


@given(policies())
def test_sums_bounds_and_order(policy):
    found = earnings(**policy)
    n, pool, cap = len(policy["names"]), policy["pool"], policy["cap"]
    paid = [i for i in range(n) if not policy["cut"][i]]
    assert sum(found.amounts) == pool
    assert sum(found.fixed) + sum(found.merit) == pool
    assert min(found.fixed + found.merit + found.amounts) >= 0
    assert all(found.amounts[i] == found.fixed[i] == found.merit[i] == 0 for i in range(n) if policy["cut"][i])
    assert all(policy["floor"] <= found.amounts[i] <= (pool if cap is None else cap) for i in paid)
    by_merit = sum(found.merit)
    wanted = pool * Fraction(policy["r"]) if any(policy["merits"]) else 0
    assert abs(by_merit - wanted) <= Fraction(1, 2)
    for part, keys in ((found.merit, policy["merits"]), (found.fixed, policy["weights"])):
        pairs = sorted((keys[i], part[i]) for i in paid)
        assert [coins for _, coins in pairs] == sorted(part[i] for i in paid)
    if not policy["floor"] and cap is None:
        assert all(found.amounts[i] == found.fixed[i] + found.merit[i] for i in range(n))
    both = sorted((found.fixed[i] + found.merit[i], found.amounts[i]) for i in paid)
    assert [coins for _, coins in both] == sorted(found.amounts[i] for i in paid)


@given(policies(), st.randoms())
def test_neither_the_order_nor_the_thread_s_decimals_change_a_coin(policy, shuffle):
    expected = by_name(policy, earnings(**policy))
    order = list(range(len(policy["names"])))
    shuffle.shuffle(order)
    shuffled = policy | {key: [policy[key][i] for i in order] for key in ("weights", "merits", "names", "cut")}
    with decimal.localcontext(decimal.Context(prec=2, rounding=decimal.ROUND_UP)):
        assert by_name(shuffled, earnings(**shuffled)) == expected


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=50), st.integers(1, 10**11), PARTS, st.integers(0, 2**32))
def test_the_last_digits_of_merits_change_nothing(merits, pool, r, seed):
    """Where no merit happens to lie between two numbers of eleven digits: some must, by any rounding."""
    values = np.array(merits)
    places = values / values.max() * 10**DIGITS
    assume((np.abs(places - np.floor(places) - 0.5) > 0.03).all())
    noise = 1 + 1e-13 * np.random.default_rng(seed).uniform(-1, 1, len(values))
    names, weights = [str(i) for i in range(len(values))], [1] * len(values)
    assert exact(values * noise) == exact(values)
    assert exact(values * 1e-9) == exact(values)
    one, other = (earnings(pool, r, weights, exact(each), names) for each in (values, values * noise))
    assert one == other


@given(policies(12))
def test_the_draws_are_paid_like_the_payout(policy):
    """``merit.amounts``, in floating point, against the exact λ and against coins."""
    paid = [i for i in range(len(policy["names"])) if not policy["cut"][i]]
    pool, r, cap, floor = policy["pool"], Fraction(policy["r"]), policy["cap"], policy["floor"]
    weights, merits = ([policy[key][i] for i in paid] for key in ("weights", "merits"))
    floating = np.array([merits], dtype=np.float64)
    found = amounts(floating, weights, float(r), pool, floor, None if cap is None else float(cap))[0]
    r = r if any(merits) else Fraction(0)
    parts = zip(weights, merits, strict=True)
    wanted = [pool * ((1 - r) * Fraction(w, sum(weights)) + r * (m / sum(merits) if r else 0)) for w, m in parts]
    wanted = clipped(pool, wanted, floor, pool if cap is None else cap)
    assert found == pytest.approx([float(each) for each in wanted], abs=1e-8 * pool)
    if not floor and cap is None:
        # whole coins: one for each part, and half a one for where the pool is cut
        assert np.abs(found - [earnings(**policy).amounts[i] for i in paid]).max() <= 2.5 + 1e-12 * pool


def test_the_draws_are_paid_like_the_payout_by_hand():
    def paid(floor, cap):
        return amounts(np.array([[3.0, 1.0, 0.0]]), [1, 1, 2], 0.4, 1000.0, floor, cap)[0].round(6).tolist()

    assert paid(0, None) == [450.0, 250.0, 300.0]
    assert paid(0, 400.0) == [400.0, 272.727273, 327.272727]
    assert paid(280, None) == [432.0, 280.0, 288.0]
    assert amounts(np.zeros((1, 2)), [3, 1], 0.4, 100.0, 0, None).tolist() == [[75.0, 25.0]]


@pytest.mark.parametrize("pool", [1, 3, 10**6, 10**11])
def test_two_thousand_contributors(pool):
    generator = random.Random(pool)
    merits = exact(np.array([max(0.0, generator.gauss(1, 1)) for _ in range(2000)]))
    names = [f"{i:05d}" for i in range(2000)]
    found = earnings(pool, Decimal("0.3"), [generator.randint(1, 99) for _ in names], merits, names)
    assert sum(found.amounts) == pool
    assert min(found.amounts) >= 0
    if pool >= 10**6:
        least, most = pool // 2200, pool // 1800
        bounded = earnings(pool, Decimal("0.3"), [1] * 2000, merits, names, floor=least, cap=most)
        assert sum(bounded.amounts) == pool
        assert (min(bounded.amounts), max(bounded.amounts)) == (least, most)


def test_by_hand():
    thirds = earnings(100, Decimal(0), [1, 1, 1], [Fraction(0)] * 3, ["b", "c", "a"])
    assert thirds.amounts == (33, 33, 34)
    # nobody has merit: all of it is fixed, though r is 1
    assert earnings(9, Decimal(1), [1, 2], [Fraction(0)] * 2, ["a", "b"]).fixed == (3, 6)
    # half a coin goes to the even number
    assert sum(earnings(1, Decimal("0.5"), [1, 1], [Fraction(1)] * 2, ["a", "b"]).merit) == 0
    assert sum(earnings(3, Decimal("0.5"), [1, 1], [Fraction(1)] * 2, ["a", "b"]).merit) == 2
    cut = earnings(
        90, Decimal("0.5"), [1, 1, 1], [Fraction(0), Fraction(1), Fraction(2)], list("abc"), cut=[True, 0, 0]
    )
    assert (cut.fixed, cut.merit, cut.amounts) == ((0, 22, 23), (0, 15, 30), (0, 37, 53))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cut": [True, True]}, "negatives: everybody surely makes the model worse"),
        ({"weights": [0, 0]}, "fixed: nobody has a whole lot"),
        ({"weights": [0, 1], "cut": [False, True]}, "fixed: nobody has a whole lot"),
        ({"floor": 51}, "floor: 2 contributors times the floor is more than the pool"),
        ({"cap": 49}, "cap: 2 contributors times the cap is less than the pool, which must be used up"),
        ({"cap": 99, "cut": [False, True]}, "cap: 1 contributors times the cap is less than the pool"),
    ],
)
def test_pools_that_cannot_be_divided(changes, message):
    given_ = {"pool": 100, "r": Decimal("0.5"), "weights": [1, 1], "merits": [Fraction(1)] * 2, "names": ["a", "b"]}
    assert earnings(**given_ | {"floor": 50, "cap": 50}).amounts == (50, 50)
    with pytest.raises(UserError, match=message):
        earnings(**given_ | changes)


@pytest.mark.parametrize("pool", range(95, 106))
def test_equal_claims_differ_by_a_coin(pool):
    for r in ("0.3", "0.5", "0.9"):
        found = earnings(pool, Decimal(r), [1] * 3, [Fraction(1)] * 3, ["Ann", "Ben", "Cyd"])
        assert max(found.amounts) - min(found.amounts) <= 1
        assert found.amounts == tuple(sorted(found.amounts, reverse=True))


@given(st.lists(st.integers(0, 9), min_size=2, max_size=9), st.integers(1, 500), PARTS)
def test_who_helps_more_never_earns_less_by_equal_weights(merits, pool, r):
    names = [str(i) for i in range(len(merits))]
    found = earnings(pool, r, [1] * len(merits), [Fraction(merit) for merit in merits], names)
    for one, two in itertools.product(range(len(merits)), repeat=2):
        if merits[one] > merits[two]:
            assert found.amounts[one] >= found.amounts[two]
        if merits[one] == merits[two]:
            assert abs(found.amounts[one] - found.amounts[two]) <= 1


def test_merits_as_fractions():
    assert exact(np.array([3.0, 1.0, 0.0])) == [Fraction(1), Fraction(33333333333, 10**11), Fraction(0)]
    assert exact(np.zeros(2)) == [Fraction(0)] * 2
    assert exact(np.array([5e-324, 0.0])) == [Fraction(1), Fraction(0)]
    assert exact(np.array([1e308, 1e308]))[0] == 1


PROGRAM = """
import json, sys
from decimal import Decimal
import numpy as np
from diffcredit.payout.earnings import earnings, exact
names = sorted({f"{i:03d}" for i in range(300)}, key=hash)  # another order for every seed of hashes
merits = exact(np.array([(int(name) * 37 % 101) / 7 for name in names]))
found = earnings(1_000_003, Decimal("0.37"), [1 + int(name) % 5 for name in names], merits, names, floor=100, cap=9000)
json.dump([names, dict(sorted(zip(names, found.amounts)))], sys.stdout)
"""


def test_the_seed_of_hashes_changes_nothing():
    found = []
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment
        )
        found.append(json.loads(done.stdout))
    assert found[0][0] != found[1][0]
    assert found[0][1] == found[1][1]
    assert sum(found[0][1].values()) == 1_000_003
