"""The positions of everything on the dot-and-interval plot, in percent of the axis.

With percentages instead of pixels, one plot fits every screen width without shrinking its text.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from diffcredit.report.numbers import decimals_for, number
from diffcredit.report.records import CreditTable
from diffcredit.report.standings import Standing, standings

# with more contributors than NAMED, only the first and last ENDS rows have names
NAMED = 40
ENDS = 15


@dataclass(frozen=True)
class Row:
    standing: Standing
    dot: float
    left: float | None
    right: float | None
    named: bool


@dataclass(frozen=True)
class Plot:
    """``rows``, most helpful first; ``ticks`` as (position, label); ``average`` is where help is 0."""

    rows: tuple[Row, ...]
    ticks: tuple[tuple[float, str], ...]
    average: float

    @property
    def unnamed(self) -> int:
        return sum(not row.named for row in self.rows)


@dataclass(frozen=True)
class Axis:
    """An axis from ``low`` to ``high``, drawn from 0 to 100 percent."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Sequence[float]) -> Self:
        """Return an axis that spans ``values`` with a margin at both ends. It need not begin at zero."""
        low, high = min(values), max(values)
        if high - low <= 1e-12 * max(abs(low), abs(high)):
            low, high = low - (abs(low) / 10 or 1), high + (abs(high) / 10 or 1)
        margin = 0.04 * (high - low)
        return cls(low - margin, high + margin)

    def position(self, value: float) -> float:
        return round(100 * (value - self.low) / (self.high - self.low), 3)

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Return round numbers on the axis as (position, label)."""
        found = nice_ticks(self.low, self.high)
        # one digit less than for an uncertainty of this size: steps are 1, 2 or 5 times a power of ten
        decimals = max(0, decimals_for((found[1] - found[0]) * (1 + 1e-9)) - 1)
        return tuple((self.position(tick), number(tick, decimals)) for tick in found)


def nice_ticks(low: float, high: float, most: int = 8) -> tuple[float, ...]:
    """Return two to ``most`` multiples of 1, 2 or 5 × 10ᵏ within [low, high]."""
    rough = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    return tuple(i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1))


def plot(table: CreditTable) -> Plot:
    """Lay out the help of every contributor with its interval."""
    order = standings(table)
    known = [row for row in order if row.help_known]
    axis = Axis.around([0.0, *table.help, *(end for row in known for end in (row.help_low, row.help_high))])
    everybody = len(order) <= NAMED
    return Plot(
        rows=tuple(
            Row(
                standing=row,
                dot=axis.position(row.help),
                left=axis.position(row.help_low) if row.help_known else None,
                right=axis.position(row.help_high) if row.help_known else None,
                named=everybody or i < ENDS or i >= len(order) - ENDS,
            )
            for i, row in enumerate(order)
        ),
        ticks=axis.ticks(),
        average=axis.position(0.0),
    )
