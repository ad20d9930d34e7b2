"""The ranking of contributors, and who differs from the average, for the page and as CSV."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from diffcredit.report.records import INTERVALS, CreditTable
from diffcredit.util.artifacts import write_text
from diffcredit.util.sanitize import csv_text

COLUMNS = ("rank", "contributor", "images", "property", "credit", "low", "high", "share", *INTERVALS)
HELP = ("help", "help_low", "help_high", "matters", "verdict")


@dataclass(frozen=True)
class Standing:
    """One contributor's place for one property."""

    contributor: str
    images: int
    rank: int  # 1 helps most; credits that are equal up to rounding share a rank (1, 2, 2, 4)
    rank_low: int
    rank_high: int
    credit: float
    low: float
    high: float
    share: float | None  # credit / (F(N) − F(∅)); None where there are no shares
    share_low: float
    share_high: float
    contrast_half_width: float
    versus_average: Literal["more", "less", "unsettled"]
    """Whether the whole interval of credit − average is on the more or less helpful side of zero. It is narrower than
    the credit's own interval, since errors of F(∅) and F(N) move all credits alike."""
    help: float  # the credit beside the average one, turned so that more is better
    help_low: float
    help_high: float
    matters: bool | None  # whether the help is large enough to matter; None: not known

    @property
    def interval_known(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def help_known(self) -> bool:
        """Whether the interval of the help is known."""
        return math.isfinite(self.contrast_half_width)

    @property
    def matters_in_words(self) -> str:
        """``yes`` or ``no``; ``maybe`` where it would matter but is not surely a difference; empty if not known."""
        if self.matters is None:
            return ""
        return "no" if not self.matters else "maybe" if self.versus_average == "unsettled" else "yes"


def standings(table: CreditTable) -> tuple[Standing, ...]:
    """Return all contributors, most helpful first; equal credits keep the table's order."""
    direction = 1 if table.higher_is_better else -1
    average, tolerance = table.average, table.rounding
    helps, help_lows, help_highs = table.help, table.help_low, table.help_high
    helpfulness = [direction * credit for credit in table.credit]
    order = sorted(range(len(helpfulness)), key=lambda i: -helpfulness[i])

    result: list[Standing] = []
    for place, i in enumerate(order, start=1):
        # compared with the best of those who share a rank, so that small steps do not add up
        tied = bool(result) and abs(result[result[-1].rank - 1].credit - table.credit[i]) <= tolerance
        low, high = table.low[i], table.high[i]
        contrast, half_width = table.credit[i] - average, table.contrast_half_width[i]
        settled = abs(contrast) > half_width + tolerance  # never where it is not finite
        side = "more" if direction * contrast > 0 else "less"
        result.append(
            Standing(
                contributor=table.contributors[i],
                images=int(table.images[i]),
                rank=result[-1].rank if tied else place,
                rank_low=int(table.rank_low[i]),
                rank_high=int(table.rank_high[i]),
                credit=float(table.credit[i]),
                low=float(low),
                high=float(high),
                share=float(table.credit[i] / table.total) if table.shared else None,
                share_low=float(table.share_low[i]),
                share_high=float(table.share_high[i]),
                contrast_half_width=float(half_width),
                versus_average=side if settled else "unsettled",
                help=helps[i],
                help_low=help_lows[i],
                help_high=help_highs[i],
                matters=table.matters[i] if table.matters else None,
            )
        )
    return tuple(result)


def credits_csv(tables: Iterable[CreditTable]) -> str:
    """Return a row for each contributor and property, most helpful first within a property; see `csv_text`. ``share``
    is empty where there is none; for ``matters`` see :attr:`Standing.matters_in_words`."""
    rows = ([*_cells(row, table.property), *_help(row, table)] for table in tables for row in standings(table))
    return csv_text([(*COLUMNS, *HELP), *rows])


def _cells(row: Standing, prop: str) -> list[str | float | None]:
    return [prop if name == "property" else getattr(row, name) for name in COLUMNS]


def _help(row: Standing, table: CreditTable) -> list[str | float | None]:
    return [row.help, row.help_low, row.help_high, row.matters_in_words, table.verdict.level if table.verdict else None]


def write_credits_csv(tables: Iterable[CreditTable], path: Path) -> None:
    write_text(path, credits_csv(tables))
