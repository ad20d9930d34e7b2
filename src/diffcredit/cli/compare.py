"""``diffcredit compare``: two studies, or two recipes of one, side by side."""

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import console, say
from diffcredit.cli.credits import METHOD_HELP, finite
from diffcredit.errors import UserError

if TYPE_CHECKING:
    from diffcredit.validation.compare import ContributorRow, PropertyComparison, StudyComparison
    from diffcredit.validation.statistics.records import Estimate

MOST_DIFFERENCES = 20

SIDE_HELP = "A study file or folder; with :RECIPE another of its recipes than its own, such as study.yaml:fine_tune."
SideArgument = Annotated[str, typer.Argument(metavar="STUDY[:RECIPE]", help=SIDE_HELP)]


def compare(
    a: SideArgument,
    b: SideArgument,
    method: Annotated[str | None, typer.Option(help=METHOD_HELP, show_default=False)] = None,
    confidence: Annotated[float, typer.Option(min=0.01, max=0.999, help="Of the intervals.")] = 0.95,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the credits to FILE.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")] = False,
) -> None:
    """Compare the credits of two studies, or of two recipes of one study."""
    from diffcredit.credit import METHODS
    from diffcredit.util.artifacts import write_text
    from diffcredit.validation.compare import compare_studies, comparison_csv

    if method is not None and method not in METHODS:
        raise UserError(f"--method: {method!r} is unknown; accepted: {', '.join(METHODS)}")
    comparison = compare_studies(a, b, method, confidence)
    if csv is not None:
        write_text(csv, comparison_csv(comparison))
    if as_json:
        typer.echo(json.dumps(finite(dataclasses.asdict(comparison)), indent=2, ensure_ascii=False, allow_nan=False))
        return
    print_comparison(comparison)
    if csv is not None:
        say(f"\nTable: {csv}")


def print_comparison(comparison: "StudyComparison") -> None:
    say(f"A: {comparison.a}\nB: {comparison.b}\nCredits: {comparison.method}")
    _print_differences(comparison)
    for side, names in (("A", comparison.only_a), ("B", comparison.only_b)):
        if names:
            say(f"only in {side}, which makes it another game: {', '.join(names)}")
    for each in comparison.properties:
        _print_property(each, comparison.confidence)
    console.print(
        "\ndiffers: the interval of B − A excludes 0; apart: the intervals of A and B do not overlap. For each "
        "contributor on its own, with the errors of A and B taken as independent.",
        style="dim",
        highlight=False,
    )


def _print_differences(comparison: "StudyComparison") -> None:
    if not comparison.differing:
        say("\nNo setting differs.")
        return
    say("\nSettings that differ, A → B:")
    for line in comparison.differing[:MOST_DIFFERENCES]:
        say(f"  {line}")
    if (more := len(comparison.differing) - MOST_DIFFERENCES) > 0:
        say(f"  … and {more} more (--json lists all)")


def _print_property(compared: "PropertyComparison", confidence: float) -> None:
    from rich.table import Table
    from rich.text import Text

    direction = "higher is better" if compared.higher_is_better else "lower is better: a negative credit helps"
    grid = Table(title=Text(f"\n{compared.property} ({direction})", "bold"), title_justify="left", box=None)
    grid.add_column("contributor", overflow="fold", min_width=12)
    grid.add_column("rank", justify="right", no_wrap=True)
    for heading in ("A", "B", "B − A"):
        grid.add_column(f"{heading} ({100 * confidence:g}%)", justify="right", overflow="fold")
    grid.add_column("", no_wrap=True, min_width=7)
    digits = _decimals(compared)
    for row in compared.rows:
        shown = [_interval(part, digits) for part in (row.a, row.b, row.difference)]
        grid.add_row(*map(Text, (row.contributor, f"{row.rank_a} → {row.rank_b}", *shown, _mark(row))))
    console.print(grid)
    say(_summary(compared))


def _summary(compared: "PropertyComparison") -> str:
    true = compared.true_correlation
    correlation, top = "none, since all credits of one are equal", ""
    if not math.isnan(compared.correlation):
        correlation = f"{compared.correlation:.2f}".replace("-", "−")
        top = f"top fifth: {compared.shared_top} of {compared.top} in both; "
    if math.isfinite(true.low) and math.isfinite(true.high):
        correlation += f", {_interval(true, 2)} for the credits of endless evaluations"
    n = len(compared.rows)
    return (
        f"rank correlation {correlation}; {top}"
        f"{sum(row.differs for row in compared.rows)} of {n} differ, {sum(row.apart for row in compared.rows)} apart; "
        f"evaluations {compared.evaluations[0]} → {compared.evaluations[1]}"
    )


def _mark(row: "ContributorRow") -> str:
    return "apart" if row.apart else "differs" if row.differs else ""


def _decimals(compared: "PropertyComparison") -> int:
    """Two significant digits of the typical interval; without one, of the credits' spread, then of the credits."""
    from diffcredit.report.numbers import NO_WIDTH, decimals_for, typical_half_width
    from diffcredit.report.standings import TOLERANCE

    credits = [part for row in compared.rows for part in (row.a, row.b)]
    typical = typical_half_width([part.low for part in credits], [part.high for part in credits])
    values = [part.value for part in credits]
    largest = max(map(abs, values))
    sizes = (typical or 0.0, max(values) - min(values), largest / 10)
    # a spread of rounding errors is no spread
    return next((decimals_for(size) for size in sizes if size > max(TOLERANCE * largest, NO_WIDTH)), 0)


def _interval(estimate: "Estimate", decimals: int) -> str:
    from diffcredit.report.validation import cell_text

    return cell_text(estimate, decimals)
