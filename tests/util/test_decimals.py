"""Decimals that do not depend on the caller's context."""

import decimal
from decimal import Decimal

import pytest

from diffcredit.util.decimals import exactly


@exactly
def sums(*amounts):
    """Add amounts."""
    return sum(amounts, Decimal(0))


def test_the_caller_s_context_changes_nothing_and_stays():
    with decimal.localcontext(decimal.Context(prec=3, rounding=decimal.ROUND_UP)) as context:
        assert sums(Decimal("999999999999.9999"), Decimal("0.0001")) == 10**12
        assert sums(Decimal(10) ** 20, Decimal("0.1")) == Decimal("100000000000000000000.1")
        assert decimal.getcontext().prec == 3
        assert not context.flags[decimal.Inexact]
        with pytest.raises(decimal.InvalidOperation):
            sums(Decimal("Infinity"), Decimal("-Infinity"))
        assert decimal.getcontext().prec == 3
    assert sums.__doc__ == "Add amounts."
    assert sums.__name__ == "sums"
