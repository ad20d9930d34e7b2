"""Whole policies drawn at random, from 2 to 2,000 contributors and pools from 0.01 to 10⁹: what every payout keeps."""

from dataclasses import replace
from decimal import ROUND_FLOOR, Decimal

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from diffcredit.payout.balances import settle
from diffcredit.payout.basis import Basis
from diffcredit.payout.merit import Contributors, Standing, cut_off
from diffcredit.payout.paying import divide_pool, pool_of
from diffcredit.payout.reliability import Followed
from diffcredit.study.policy import PolicySection

from .made_up_basis import basis_of
from .test_merit import measured

CREDITS = measured([1.0, 0.5, 0.0])
PLAIN = basis_of(CREDITS, dict.fromkeys(CREDITS.names, 1))
LOT = 20


def whole(amount: Decimal, coin: Decimal) -> Decimal:
    return (amount / coin).to_integral_value(ROUND_FLOOR) * coin


def drawn(seed: int, n: int, cents: int) -> tuple[Basis, Decimal]:
    """Return a random policy with random credits of n contributors, and a pool that it can divide."""
    random = np.random.default_rng(seed)

    def one_of(*choices):
        return choices[int(random.integers(len(choices)))]

    merit, coin = one_of("help", "least"), Decimal(one_of("0.01", "0.01", "0.05", "1"))
    pool = max(whole(Decimal(cents) / 100, coin), coin)
    lots = bool(random.integers(2))
    images = {f"{i:04d}": int(random.integers(LOT if i == 0 else 1, 60)) for i in range(n)}
    whose: dict[str, str] = {}
    if lots:
        whose = {f"{name} {k}": name for name, count in images.items() for k in range(-(-count // LOT))}
        players = {player: min(LOT, images[name] - LOT * int(player[5:])) for player, name in whose.items()}
    people = Contributors.of(players if lots else images, whose, LOT if lots else None)
    kinds = random.normal(0, 1, len(people.owner)), np.full(len(people.owner), one_of(-1.0, 0.0, 2.0))
    values = one_of(*kinds, np.round(kinds[0])) * one_of(1e-6, 1.0, 1e6)
    sign = one_of(1, -1)
    above = sign * (people.sums @ values)
    width = float(random.uniform(0, 2)) * float(np.abs(above).max() + 1e-9)
    standing = Standing(*[above] * 8, above_high=above + width)
    stated = {
        "property": "quality",
        "currency": "EUR",
        "fixed": one_of("equal", "images", *(["lots"] * lots)),
        "merit": merit,
        "r": str(round(float(random.uniform()), 3)) if random.integers(4) else one_of("0", "1"),
        "rounding": str(coin),
        "negatives": one_of("zero", "cut") if merit == "help" else "zero",
    }
    kept = n - int(cut_off(standing, PolicySection.model_validate(stated)).sum())
    if not kept or (stated["fixed"] == "lots" and standing.above_high[0] < 0):
        stated["negatives"], kept = "zero", n  # somebody is paid, who has a lot
    if random.integers(2):
        stated["floor"] = str(whole(pool / kept * Decimal(random.uniform()), coin))
    if random.integers(2):
        stated["cap"] = str(whole(pool / kept * Decimal(1 + random.exponential()), coin) + coin)
    if random.integers(2):
        stated["minimum"] = str(whole(pool / kept * Decimal(2 * random.uniform()), coin))
    policy = PolicySection.model_validate(stated)
    made = replace(
        PLAIN,
        policy=policy,
        credits=replace(CREDITS, values=values),
        contributors=people,
        sign=sign,
        standing=standing,
        cut=cut_off(standing, policy),
        followed=Followed(policy.r, ""),
    )
    return made, pool


SIZES = st.one_of(st.integers(2, 12), st.integers(2, 2000))
QUIET = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@example(0, 2, 1)
@example(1, 2000, 10**11)
@example(2, 2000, 1)
@given(st.integers(0, 2**32), SIZES, st.integers(1, 10**11))
@QUIET
def test_what_every_payout_keeps(seed, n, cents):
    basis, pool = drawn(seed, n, cents)
    policy, people = basis.policy, basis.contributors
    assert pool_of(policy, "payout.yaml", str(pool)) == pool
    found = divide_pool(basis, pool)
    amounts = [coins * policy.rounding for coins in found.amounts]
    assert sum(amounts) == pool
    assert min(found.amounts + found.fixed + found.merit) >= 0
    for amount, cut in zip(amounts, basis.cut, strict=True):
        assert amount == 0 if cut else policy.floor <= amount <= (pool if policy.cap is None else policy.cap)
    if people.lots is None:  # else merit is counted by lot, and only those who help may add to it
        paid = [(round(float(above), 9), coins) for above, coins in zip(basis.standing.above, found.merit, strict=True)]
        in_order = sorted(paid)
        assert [coins for _, coins in in_order] == sorted(found.merit), "more help, never less for merit"


@given(st.integers(0, 2**32), st.integers(2, 60), st.lists(st.integers(1, 10**7), min_size=2, max_size=6))
@QUIET
def test_no_coin_is_lost_over_periods(seed, n, pools):
    """Whatever is carried forward under a minimum: all that was paid and is carried still is all the pools."""
    carried, given_out, divided = [Decimal(0)] * n, Decimal(0), Decimal(0)
    for cents in pools:
        basis, pool = drawn(seed, n, cents)
        policy, divided = basis.policy, divided + pool
        for i, coins in enumerate(divide_pool(basis, pool).amounts):
            opening, amount = carried[i], coins * policy.rounding
            found = settle(opening, amount, policy.minimum, policy.rounding)
            assert opening + amount == found.paid + found.carried
            assert min(found.paid, found.carried) >= 0
            assert found.paid == 0 or found.paid >= policy.minimum
            carried[i], given_out = found.carried, given_out + found.paid
        assert given_out + sum(carried) == divided
