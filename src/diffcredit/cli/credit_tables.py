"""Credits as tables on a terminal: the verdict first, then every contributor, the most helpful first."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from rich.text import Text

from diffcredit.cli.console import console, least_width, say, table
from diffcredit.errors import DiffcreditWarning
from diffcredit.util.sanitize import single_line

if TYPE_CHECKING:
    from diffcredit.report import CreditTable
    from diffcredit.study.study import Study

STYLES = {"pay by it": "bold green", "use with care": "bold yellow", "do not use": "bold red"}
GAP = 2  # blanks around a column
MARKS = {"more": "more", "less": "less", "unsettled": "no"}  # beside the average contributor


@dataclass(frozen=True)
class Column:
    """A column of the table. Where it is too narrow for all, those with the highest ``spare`` are left out first."""

    name: str
    cells: Sequence[str]
    spare: int = 0
    left: bool = False

    @property
    def width(self) -> int:
        return max(map(len, (self.name, *self.cells)))


def print_results(study: "Study", tables: "Sequence[CreditTable]") -> None:
    """Print credits that were written to the study's results, and where they are."""
    print_tables(tables)
    warn_of_lack_of_fit(tables)
    say(f"\nReport: {study.folder / 'report.html'}\nTable:  {study.folder / 'credits.csv'}")


def print_tables(tables: "Sequence[CreditTable]") -> None:
    """Print the verdict on each property, then a table for each."""
    for each in tables:
        if each.verdict is not None:
            title = Text(f"{single_line(each.title)}: ", "bold")
            console.print(
                Text.assemble(title, (each.verdict.level, STYLES[each.verdict.level]), f". {each.verdict.reason}")
            )
    for each in tables:
        _print_table(each)
    console.print(
        "help: how much more a contributor helps than the average one; more is better for every property\n"
        "differs: from the average contributor, beyond the interval; matters: by more than another training seed does, "
        "or than the study states; maybe: only if the difference is real",
        style="dim",
        highlight=False,
    )
    reasons = {each.title: each.no_shares for each in tables if each.no_shares}
    whose = "" if len(reasons) == len(tables) and len(set(reasons.values())) == 1 else "{}: "
    for sentence in dict.fromkeys(whose.format(single_line(title)) + why for title, why in reasons.items()):
        console.print(sentence, style="dim", highlight=False)


def warn_of_lack_of_fit(tables: "Sequence[CreditTable]") -> None:
    """Warn of each property for which the values of some coalitions do not fit the others."""
    from diffcredit.report.outliers import outlier_warning

    for each in tables:
        if (said := outlier_warning(each)) is not None:
            warnings.warn(said, DiffcreditWarning, stacklevel=2)


def _print_table(credits: "CreditTable") -> None:
    from diffcredit.report.numbers import credit_decimals, number

    names, columns = _columns(credits)
    shown, dropped = _fitting(names, columns)
    direction = "higher is better" if credits.higher_is_better else "lower is better"
    by = "" if credits.method == "shapley" else f", by {credits.method}"
    grid = table(
        [each.name for each in shown],
        zip(*(each.cells for each in shown), strict=True),
        left=[each.name for each in shown if each.left],
        folded=[names.name],
        title=f"{credits.title} ({direction}{by})",
    )
    grid.columns[shown.index(names)].min_width = least_width([names.name, *names.cells])
    console.print(grid)
    if dropped:
        console.print(f"not shown at this width: {', '.join(dropped)}", style="dim", highlight=False)
    digits = credit_decimals(credits)
    total = f" = F(all) {number(credits.full, digits)} − F(reference) {number(credits.empty, digits)}"
    console.print(
        f"credits sum to {number(credits.sum, digits)}{total if credits.sums_to_total else ''}; reference: "
        f"{credits.reference.words}; {credits.evaluations} evaluations, {credits.failed} failed; {credits.method}",
        highlight=False,
        style="dim",
    )


def _columns(credits: "CreditTable") -> tuple[Column, list[Column]]:
    """Return the column of the names, and all columns in their order."""
    from diffcredit.report.numbers import (
        credit_decimals,
        help_decimals,
        number,
        share_decimals,
        share_span,
        signed,
        span,
    )
    from diffcredit.report.standings import standings

    rows, interval, share_digits = (
        standings(credits),
        f"{100 * credits.confidence:g}% interval",
        share_decimals(credits),
    )
    helps, half_widths = [row.help for row in rows], [row.contrast_half_width for row in rows]
    values, errors = [row.credit for row in rows], [(row.high - row.low) / 2 for row in rows]
    names = Column("contributor", [row.contributor for row in rows], left=True)
    columns = [
        Column("rank", _paired((str(row.rank), span(row.rank_low, row.rank_high)) for row in rows), spare=2),
        names,
        Column("images", [str(row.images) for row in rows], spare=4),
        Column(f"help ± {interval}", _with_errors(helps, half_widths, help_decimals(credits), signed)),
        Column("differs", [MARKS[row.versus_average] for row in rows], left=True),
        Column("matters", [row.matters_in_words for row in rows], left=True),
        Column(f"credit ± {interval}", _with_errors(values, errors, credit_decimals(credits), number), spare=3),
    ]
    if credits.shared:
        pairs = (
            (
                f"{number(100 * (row.share or 0), share_digits)}%",
                share_span(row.share_low, row.share_high, share_digits),
            )
            for row in rows
        )
        columns.append(Column("share", _paired(pairs), spare=1, left=True))
    return names, columns


def _with_errors(
    values: Sequence[float], errors: Sequence[float], decimals: int, written: Callable[[float, int], str]
) -> list[str]:
    """Return ``+1.2 ± 1.4`` for each value, whose intervals are symmetric."""
    return [
        f"{written(value, decimals)} ± {written(error, decimals).lstrip('+') if isfinite(error) else 'not known'}"
        for value, error in zip(values, errors, strict=True)
    ]


def _fitting(names: Column, columns: list[Column]) -> tuple[list[Column], list[str]]:
    """Return the columns that fit the terminal beside unbroken names, and the names of those left out."""

    def width(some: list[Column]) -> int:
        return sum(
            least_width([names.name, *names.cells]) if each is names else each.width for each in some
        ) + GAP * len(some)

    kept, dropped = list(columns), []
    for each in sorted(filter(lambda each: each.spare, columns), key=lambda each: -each.spare):
        if width(kept) <= console.width:
            break
        kept.remove(each)
        dropped.append(each.name)
    return kept, dropped


def _paired(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return ``3 (2–5)`` for each pair, with both parts aligned."""
    listed = list(pairs)
    left, right = (max((len(pair[side]) for pair in listed), default=0) for side in (0, 1))
    return [f"{value:>{left}} {f'({interval})':<{right + 2}}" for value, interval in listed]
