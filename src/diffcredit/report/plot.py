"""The positions of everything on the dot-and-interval plot, in percent of the axis.

With percentages instead of pixels, one plot fits every screen width without shrinking its text.
"""

import math
from dataclasses import dataclass

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
    """``rows``, most helpful first; ``ticks`` as (position, label); ``zero`` is None where it is out of range."""

    rows: tuple[Row, ...]
    ticks: tuple[tuple[float, str], ...]
    average: float
    zero: float | None

    @property
    def unnamed(self) -> int:
        return sum(not row.named for row in self.rows)


def nice_ticks(low: float, high: float, most: int = 8) -> tuple[float, ...]:
    """Return two to ``most`` multiples of 1, 2 or 5 × 10ᵏ within [low, high]."""
    rough = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    return tuple(i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1))


def plot(table: CreditTable) -> Plot:
    """Lay out the plot. Its axis spans the intervals and the average, not zero, so that differences can be seen."""
    order = standings(table)
    shown = [table.average, *table.credit, *(x for row in order if row.interval_known for x in (row.low, row.high))]
    low, high = min(shown), max(shown)
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        low, high = low - (abs(low) / 10 or 1), high + (abs(high) / 10 or 1)
    margin = 0.04 * (high - low)
    low, high = low - margin, high + margin

    def position(value: float) -> float:
        return round(100 * (value - low) / (high - low), 3)

    ticks = nice_ticks(low, high)
    # one digit less than for an uncertainty of this size: steps are 1, 2 or 5 times a power of ten
    decimals = max(0, decimals_for((ticks[1] - ticks[0]) * (1 + 1e-9)) - 1)
    everybody = len(order) <= NAMED
    return Plot(
        rows=tuple(
            Row(
                standing=row,
                dot=position(row.credit),
                left=position(row.low) if row.interval_known else None,
                right=position(row.high) if row.interval_known else None,
                named=everybody or i < ENDS or i >= len(order) - ENDS,
            )
            for i, row in enumerate(order)
        ),
        ticks=tuple((position(tick), number(tick, decimals)) for tick in ticks),
        average=position(table.average),
        zero=position(0.0) if low <= 0 <= high else None,
    )
