"""The sentences that say what changed an amount, with all the decimals of a coin."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from diffcredit.payout.balances import settle
from diffcredit.payout.paying import divide_pool
from diffcredit.payout.reasons import reasons

from .made_up_basis import basis_of
from .test_merit import measured

CREDITS = measured([3.0, 1.0, 0.0, 0.0])


def said(i, opening="0.00", cut=(), **policy):
    """What is said to contributor ``i`` of 100.00 divided by merits of 3, 1, 0 and 0."""
    basis = basis_of(CREDITS, dict.fromkeys(CREDITS.names, 1), **policy)
    basis = replace(basis, cut=np.isin(np.arange(4), cut))
    earned = divide_pool(basis, Decimal("100.00"))
    settled = settle(Decimal(opening), earned.amounts[i] * Decimal("0.01"), basis.policy.minimum, Decimal("0.01"))
    return reasons(basis, i, earned, Decimal(opening), settled)


@pytest.mark.parametrize(
    ("i", "policy", "sentences"),
    [
        (0, {}, ""),
        (0, {"cap": 40}, "The cap of 40.00 limits the amount."),
        (1, {"cap": 40}, "Raised in proportion, by what the cap takes from larger amounts."),
        (3, {"floor": "20.5"}, "The floor of 20.50 raises the amount."),
        (0, {"floor": "20.5"}, "Reduced in proportion, because the floor raises smaller amounts."),
        (3, {"minimum": 20}, "Carried forward: 15.00 is below the minimum payment of 20.00."),
        (3, {"minimum": 20, "opening": "4.50"}, "Carried forward: 19.50 is below the minimum payment of 20.00."),
        (3, {"minimum": 20, "opening": "5.00"}, ""),
        (3, {"opening": "0.0050"}, "Carried forward: 0.0050, less than the smallest amount that is paid."),
    ],
)
def test_what_changed_an_amount(i, policy, sentences):
    assert said(i, **policy) == sentences


def test_who_is_cut_off_is_still_paid_an_opening_balance():
    """So nothing is earned, but something may be paid."""
    found = said(3, opening="7.00", cut=[3], negatives="cut")
    assert found.startswith("Nothing is earned: these images surely make the model worse than the reference")
    assert "paid" not in found
