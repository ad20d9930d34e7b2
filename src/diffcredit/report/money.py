"""Amounts of money for readers: exact, with thousands separators, and never through binary fractions.

>>> euros = MoneyFormat("EUR", "0.01")
>>> euros.exact(Decimal("1234.5"))
'EUR\\xa01,234.50'
>>> MoneyFormat("CHF", "0.05").span(Decimal("9.98"), Decimal("12.341"))
'CHF\\xa010.00 to CHF\\xa012.35'
"""

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

NO_BREAK = "\u00a0"


@dataclass(frozen=True)
class MoneyFormat:
    """How one payout's amounts are written: their currency's code, and the smallest ``coin`` by its policy's rounding,
    such as ``0.01``."""

    currency: str
    coin: str

    @property
    def decimals(self) -> int:
        """The decimals of the smallest coin. One alone would look like a mistake, so that 0.5 has two."""
        found = places(Decimal(self.coin))
        return 2 if found == 1 else found

    def bare(self, amount: Decimal) -> str:
        """Return an amount without its currency. None of its digits is ever left out."""
        text = f"{amount:,.{max(self.decimals, places(amount))}f}"
        return text.replace("-", "−") if amount else text.lstrip("-")

    def exact(self, amount: Decimal) -> str:
        """Return an amount with its currency and all its digits."""
        return f"{self.currency}{NO_BREAK}{self.bare(amount)}"

    def rounded(self, amount: Decimal) -> str:
        """Return an estimated amount with its currency, to the nearest coin."""
        return self.exact(self._nearest(amount))

    def span(self, low: Decimal, high: Decimal) -> str:
        """Return the two ends of an interval, each to the nearest coin."""
        return f"{self.rounded(low)} to {self.rounded(high)}"

    def bare_span(self, low: Decimal, high: Decimal) -> str:
        """Return the two ends of an interval without their currency."""
        return f"{self.bare(self._nearest(low))} to {self.bare(self._nearest(high))}"

    def _nearest(self, amount: Decimal) -> Decimal:
        coin = Decimal(self.coin)
        return (amount / coin).quantize(Decimal(1), ROUND_HALF_EVEN) * coin


def places(number: Decimal) -> int:
    """Return how many decimals a number needs."""
    exponent = number.normalize().as_tuple().exponent
    assert isinstance(exponent, int), f"{number} is not finite"
    return max(0, -exponent)


def percentage(part: Decimal) -> str:
    """Return a part of 1 in percent, with all its digits."""
    return f"{(100 * part).normalize():f}{NO_BREAK}%"
