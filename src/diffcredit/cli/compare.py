"""``diffcredit compare``: two studies, or two recipes of one, side by side."""

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import console, least_width, print_json, say, table
from diffcredit.cli.options import ConfidenceOption, EstimatorOption

if TYPE_CHECKING:
    from diffcredit.validation.compare import PropertyComparison, StudyComparison

MOST_DIFFERENCES = 20

SIDE_HELP = "A study file or folder; with :RECIPE another of its recipes than its own, such as study.yaml:fine_tune."
SideArgument = Annotated[str, typer.Argument(metavar="STUDY[:RECIPE]", help=SIDE_HELP)]


def compare(
    a: SideArgument,
    b: SideArgument,
    method: EstimatorOption = None,
    confidence: ConfidenceOption = 0.95,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the credits to FILE.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")] = False,
) -> None:
    """Compare the credits of two studies, or of two recipes of one study."""
    from diffcredit.util.artifacts import write_text
    from diffcredit.validation.compare import compare_studies, comparison_csv

    comparison = compare_studies(a, b, method, confidence)
    if csv is not None:
        write_text(csv, comparison_csv(comparison))
    if as_json:
        print_json(dataclasses.asdict(comparison))
        return
    print_comparison(comparison)
    if csv is not None:
        say(f"\nTable: {csv}")


def print_comparison(comparison: "StudyComparison") -> None:
    say(f"A: {comparison.a}\nB: {comparison.b}\nCredits: {comparison.method}")
    say("\nSettings that differ, A → B:" if comparison.differing else "\nNo setting differs.")
    for line in comparison.differing[:MOST_DIFFERENCES]:
        say(f"  {line}")
    if (more := len(comparison.differing) - MOST_DIFFERENCES) > 0:
        say(f"  … and {more} more (--json lists all)")
    if {"data.fingerprint", "seeds.data"} <= {line.partition(" ")[0] for line in comparison.differing}:
        say(
            "drawn by different seeds: the same contributions.seed in both draws the same contributors and held-out "
            "images"
        )
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


def _print_property(compared: "PropertyComparison", confidence: float) -> None:
    from diffcredit.report.numbers import decimals
    from diffcredit.report.validation import cell_text

    both = [part for row in compared.rows for part in (row.a, row.b)]
    digits = decimals([each.value for each in both], [each.low for each in both], [each.high for each in both])
    cells = [
        (
            row.contributor,
            f"{row.rank_a} → {row.rank_b}",
            *(cell_text(part, digits) for part in (row.a, row.b, row.difference)),
            "apart" if row.apart else "differs" if row.differs else "",
        )
        for row in compared.rows
    ]
    direction = "higher is better" if compared.higher_is_better else "lower is better; a lower credit helps more"
    values = [f"{heading} ({100 * confidence:g}%)" for heading in ("A", "B", "B − A")]
    grid = table(
        ("contributor", "rank", *values, ""),
        cells,
        left=[""],
        folded=["contributor", *values],
        title=f"{compared.property} ({direction})",
    )
    grid.columns[0].min_width = least_width(["contributor", *(row.contributor for row in compared.rows)])
    console.print(grid)
    say(_summary(compared))


def _summary(compared: "PropertyComparison") -> str:
    from diffcredit.report.validation import cell_text

    true = compared.true_correlation
    correlation, top = "none, since all credits of one are equal", ""
    if not math.isnan(compared.correlation):
        correlation = f"{compared.correlation:.2f}".replace("-", "−")
        top = f"top fifth: {compared.shared_top} of {compared.top} in both; "
    if true.bounded:
        correlation += f", {cell_text(true, 2)} between the exact credits (estimated)"
    n = len(compared.rows)
    return (
        f"rank correlation {correlation}; {top}"
        f"{sum(row.differs for row in compared.rows)} of {n} differ, {sum(row.apart for row in compared.rows)} apart; "
        f"evaluations {compared.evaluations[0]} → {compared.evaluations[1]}"
    )
