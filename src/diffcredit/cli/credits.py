"""``diffcredit credits``: the credits of a study as a table, CSV or JSON."""

import dataclasses
import math
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from diffcredit.cli.console import console, print_json, say, table
from diffcredit.cli.options import ConfidenceOption, EstimatorOption, StudyArgument
from diffcredit.errors import DiffcreditWarning, UserError, located

if TYPE_CHECKING:
    from diffcredit.report import CreditTable
    from diffcredit.study.study import Study


def credits(
    study: StudyArgument,
    property: Annotated[str | None, typer.Option(help="Only this property.")] = None,
    mix: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=WEIGHT,...",
            help='Credits for a weighted sum of properties, such as "colourfulness=1,heldout_loss=-2".',
        ),
    ] = None,
    method: EstimatorOption = None,
    confidence: ConfidenceOption = 0.95,
    format: Annotated[Literal["table", "csv", "json"], typer.Option(help="Output format.")] = "table",
) -> None:
    """Print the credits from all evaluations so far."""
    from diffcredit.report.standings import credits_csv

    if mix is None:
        tables = _tables(study, property, method, confidence)
    elif property is None:
        tables = (_mixed(study, mix, method, confidence),)
    else:
        raise UserError("--property and --mix: both given; one of them is accepted")
    if format == "csv":
        typer.echo(credits_csv(tables), nl=False)
    elif format == "json":
        print_json([_content(each) for each in tables])
    else:
        print_tables(tables)
    warn_of_lack_of_fit(tables)


def _tables(study: str, property: str | None, method: str | None, confidence: float) -> "tuple[CreditTable, ...]":
    from diffcredit.report.tables import credit_tables
    from diffcredit.study.study import Study

    tables = credit_tables(Study.load(study), method, confidence)
    if property is None:
        return tables
    names = [table.property for table in tables]
    if property not in names:
        raise UserError(f"--property: {property!r} is not measured in this study; accepted: {', '.join(names)}")
    return tuple(table for table in tables if table.property == property)


def _mixed(study: str, text: str, method: str | None, confidence: float) -> "CreditTable":
    from diffcredit.credit import mix
    from diffcredit.report.tables import mixed_table
    from diffcredit.study.study import Study

    weights = parse_weights(text)
    loaded = Study.load(study)
    credits = loaded.credits(method, confidence)
    with located("--mix"):
        mixed = mix(credits, weights)
    return mixed_table(loaded, mixed, next(iter(credits.values())).method)


def parse_weights(text: str) -> dict[str, float]:
    """Return the weights of ``colourfulness=1,heldout_loss=-2`` by property."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.rpartition("="))
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not name or not math.isfinite(weight):
            raise UserError(
                f"--mix: {part.strip()!r} is not NAME=WEIGHT; accepted: properties with numbers, separated by commas, "
                "such as colourfulness=1,heldout_loss=-2"
            )
        if name in weights:
            raise UserError(f"--mix: {name!r} has two weights; one is accepted")
        weights[name] = weight
    return weights


def _content(credits: "CreditTable") -> dict[str, Any]:
    from diffcredit.report.standings import standings

    rows = {row.contributor: row for row in standings(credits)}
    ordered = [rows[name] for name in credits.contributors]
    places = {"rank": [row.rank for row in ordered], "share": [row.share for row in ordered]}
    return dataclasses.asdict(credits) | places


def print_results(study: "Study", tables: "Sequence[CreditTable]") -> None:
    """Print credits that were written to the study's results, and where they are."""
    print_tables(tables)
    warn_of_lack_of_fit(tables)
    say(f"\nReport: {study.folder / 'report.html'}\nTable:  {study.folder / 'credits.csv'}")


def print_tables(tables: "Sequence[CreditTable]") -> None:
    """Print a table for each property, the most helpful contributor first."""
    for each in tables:
        _print_table(each)
    console.print("in brackets: the interval of each contributor's rank or share", style="dim")


def warn_of_lack_of_fit(tables: "Sequence[CreditTable]") -> None:
    """Warn of each property for which the values of some coalitions do not fit the others."""
    from diffcredit.report.outliers import outlier_warning

    for each in tables:
        if (said := outlier_warning(each)) is not None:
            warnings.warn(said, DiffcreditWarning, stacklevel=2)


def _print_table(credits: "CreditTable") -> None:
    from diffcredit.report.numbers import credit_decimals, number, share_decimals, share_span, span
    from diffcredit.report.standings import standings

    digits, share_digits, rows = credit_decimals(credits), share_decimals(credits), standings(credits)
    marks = {"more": "helps more", "less": "helps less", "unsettled": ""}
    columns = {
        "rank": _paired((str(row.rank), span(row.rank_low, row.rank_high)) for row in rows),
        "contributor": [row.contributor for row in rows],
        "images": [str(row.images) for row in rows],
        "credit": [number(row.credit, digits) for row in rows],
        f"{100 * credits.confidence:g}% interval": [
            f"{number(row.low, digits)} to {number(row.high, digits)}" if row.interval_known else "not known"
            for row in rows
        ],
        "share": _paired(
            (f"{number(100 * row.share, share_digits)}%", share_span(row.share_low, row.share_high, share_digits))
            for row in rows
            if row.share is not None
        ),
        "": [marks[row.versus_average] for row in rows],
    }
    shown = {name: cells for name, cells in columns.items() if cells}  # not all methods have shares
    direction = "higher is better" if credits.higher_is_better else "lower is better: a negative credit helps"
    by = "" if credits.method == "shapley" else f", by {credits.method}"
    grid = table(
        list(shown),
        zip(*shown.values(), strict=True),
        left=("contributor", "share"),
        folded=shown.keys() - {"images", "credit"},
        title=f"{credits.title} ({direction}){by}",
    )
    grid.columns[1].min_width = 12  # a long name is folded, never cut
    console.print(grid)
    total = f" = F(all) {number(credits.full, digits)} − F(none) {number(credits.empty, digits)}"
    console.print(
        f"sum {number(credits.sum, digits)}{total if credits.sums_to_total else ''}; "
        f"average {number(credits.average, digits)}; "
        f"{credits.evaluations} evaluations, {credits.failed} failed; {credits.method}",
        highlight=False,
        soft_wrap=True,
        style="dim",
    )


def _paired(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return ``3 (2–5)`` for each pair, with both parts aligned."""
    listed = list(pairs)
    left, right = (max((len(pair[side]) for pair in listed), default=0) for side in (0, 1))
    return [f"{value:>{left}} {f'({interval})':<{right + 2}}" for value, interval in listed]
