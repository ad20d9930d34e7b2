"""Who helps most, and who can be told apart from the average: the arithmetic behind the page and the CSV."""

import math
from dataclasses import dataclass
from typing import Literal

from diffcredit.report.records import CreditTable

# relative to the largest magnitude involved: far above rounding, far below any interval worth reporting
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Standing:
    """One contributor's place for one property.

    ``rank`` 1 helps most, and equal credits share a rank (1, 2, 2, 4). ``share`` is credit / (F(N) − F(∅)),
    or None when that total is 0. ``versus_average`` says whether the whole interval lies on the more or the
    less helpful side of the average credit. ``harms`` says the same about zero: the whole interval lies on
    the unhelpful side.
    """

    contributor: str
    images: int
    rank: int
    credit: float
    low: float
    high: float
    share: float | None
    versus_average: Literal["more", "less", "unsettled"]
    harms: bool

    @property
    def interval_known(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)


def total(table: CreditTable) -> float:
    """F(N) − F(∅): what all contributors together bring."""
    return table.full - table.empty


def credit_sum(table: CreditTable) -> float:
    return math.fsum(table.credit)


def average_credit(table: CreditTable) -> float:
    """Σ credit / n, which is (F(N) − F(∅)) / n for every method whose credits sum to the total."""
    return credit_sum(table) / len(table.credit)


def sums_to_total(table: CreditTable) -> bool:
    """Whether Σ credit = F(N) − F(∅) up to rounding: true of Shapley values (efficiency)."""
    return abs(credit_sum(table) - total(table)) <= TOLERANCE * _scale(table) * len(table.credit)


def _scale(table: CreditTable) -> float:
    """The largest magnitude involved, which rounding errors are relative to: that of F, not only of credits."""
    return max(abs(table.empty), abs(table.full), *map(abs, table.credit))


def standings(table: CreditTable) -> tuple[Standing, ...]:
    """All contributors, most helpful first; equal credits keep the table's order."""
    direction = 1 if table.higher_is_better else -1
    average, whole = average_credit(table), total(table)
    tolerance = TOLERANCE * _scale(table)
    helpfulness = [direction * credit for credit in table.credit]
    order = sorted(range(len(helpfulness)), key=lambda i: -helpfulness[i])

    result: list[Standing] = []
    for place, i in enumerate(order, start=1):
        tied = bool(result) and result[-1].credit == table.credit[i]
        low, high = table.low[i], table.high[i]
        known = math.isfinite(low) and math.isfinite(high)
        above, below = known and low > average + tolerance, known and high < average - tolerance
        side = "more" if above == table.higher_is_better else "less"
        result.append(
            Standing(
                contributor=table.contributors[i],
                images=int(table.images[i]),
                rank=result[-1].rank if tied else place,
                credit=float(table.credit[i]),
                low=float(low),
                high=float(high),
                share=float(table.credit[i] / whole) if whole else None,
                versus_average=side if above or below else "unsettled",
                harms=known and (high < 0 if table.higher_is_better else low > 0),
            )
        )
    return tuple(result)
