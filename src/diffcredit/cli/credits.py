"""``diffcredit credits``: the credits of a study as a table, CSV or JSON."""

import dataclasses
import json
import math
import warnings
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffcredit.cli.console import StudyArgument, console
from diffcredit.errors import DiffcreditWarning, UserError, located

if TYPE_CHECKING:
    from diffcredit.report import CreditTable

# Written out, because importing the registry imports scipy, which would slow down --help.
METHOD_HELP = (
    "Shapley values: shapley, unshrunk, kernelshap, permutation, exact. Other questions: banzhaf, banzhaf-msr, "
    "leave-one-out, add-one-in, datamodel, datamodel-lasso. Default: shapley, or what the design is for where it has "
    "no Shapley values."
)


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"


def credits(
    study: StudyArgument,
    property: Annotated[str | None, typer.Option(help="Only this property.", show_default=False)] = None,
    mix: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=WEIGHT,...",
            help='Credits for a weighted sum of properties, such as "colourfulness=1,heldout_loss=-2".',
            show_default=False,
        ),
    ] = None,
    method: Annotated[str | None, typer.Option(help=METHOD_HELP, show_default=False)] = None,
    confidence: Annotated[float, typer.Option(min=0.01, max=0.999, help="Confidence level of the intervals.")] = 0.95,
    format: Annotated[Format, typer.Option(help="Output format.")] = Format.table,
) -> None:
    """Print the credits from all evaluations so far."""
    from diffcredit.credit import METHODS
    from diffcredit.report.spreadsheet import credits_csv

    if method is not None and method not in METHODS:
        raise UserError(f"--method: {method!r} is unknown; accepted: {', '.join(METHODS)}")
    if mix is None:
        tables = _tables(study, property, method, confidence)
    elif property is None:
        tables = (_mixed(study, mix, method, confidence),)
    else:
        raise UserError("--property and --mix: both given; one of them is accepted")
    if format is Format.csv:
        typer.echo(credits_csv(tables), nl=False)
        warn_of_lack_of_fit(tables)
    elif format is Format.json:
        content = [_content(table) for table in tables]
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
        warn_of_lack_of_fit(tables)
    else:
        print_credits(tables)


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


def _content(table: "CreditTable") -> dict[str, Any]:
    """Return the table for JSON, with ranks and shares in the order of its contributors."""
    from diffcredit.report.standings import standings

    rows = {row.contributor: row for row in standings(table)}
    ordered = [rows[name] for name in table.contributors]
    places = {"rank": [row.rank for row in ordered], "share": [row.share for row in ordered]}
    return finite(dataclasses.asdict(table) | places)


def finite(value: Any) -> Any:
    """Return ``value`` with None in place of infinities and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_credits(tables: "Sequence[CreditTable]") -> None:
    """Print a table for each property, the most helpful contributor first; warn of values that do not fit."""
    for table in tables:
        _print_table(table)
    console.print("in brackets: the interval of each contributor's rank or share", style="dim")
    warn_of_lack_of_fit(tables)


def warn_of_lack_of_fit(tables: "Sequence[CreditTable]") -> None:
    """Warn of each property for which the values of some coalitions do not fit the others."""
    from diffcredit.report.outliers import outlier_warning

    for table in tables:
        if (said := outlier_warning(table)) is not None:
            warnings.warn(said, DiffcreditWarning, stacklevel=2)


def _print_table(table: "CreditTable") -> None:
    from rich.table import Table
    from rich.text import Text

    from diffcredit.report.numbers import credit_decimals, number, share_decimals, share_span, span
    from diffcredit.report.standings import average_credit, credit_sum, standings, sums_to_total

    digits, share_digits, rows = credit_decimals(table), share_decimals(table), standings(table)
    marks = {"more": "helps more", "less": "helps less", "unsettled": ""}
    columns = {
        "rank": _paired((str(row.rank), span(row.rank_low, row.rank_high)) for row in rows),
        "contributor": [row.contributor for row in rows],
        "images": [str(row.images) for row in rows],
        "credit": [number(row.credit, digits) for row in rows],
        f"{100 * table.confidence:g}% interval": [
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
    direction = "higher is better" if table.higher_is_better else "lower is better: a negative credit helps"
    by = "" if table.method == "shapley" else f", by {table.method}"
    grid = Table(title=Text(f"\n{table.title} ({direction}){by}", "bold"), title_justify="left", box=None)
    shown = {name: cells for name, cells in columns.items() if cells}  # not all methods have shares
    for name in shown:
        grid.add_column(
            name,
            justify="left" if name in ("rank", "contributor", "share") else "right",
            overflow="fold",  # never cut a name
            no_wrap=name in ("images", "credit"),
            min_width=12 if name == "contributor" else None,
        )
    for row in zip(*shown.values(), strict=True):
        grid.add_row(*map(Text, row))  # a name is data, never markup
    console.print(grid)
    total = f" = F(all) {number(table.full, digits)} − F(none) {number(table.empty, digits)}"
    console.print(
        f"sum {number(credit_sum(table), digits)}{total if sums_to_total(table) else ''}; "
        f"average {number(average_credit(table), digits)}; "
        f"{table.evaluations} evaluations, {table.failed} failed; {table.method}",
        highlight=False,
        soft_wrap=True,
        style="dim",
    )


def _paired(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return ``3 (2–5)`` for each pair, with both parts aligned."""
    listed = list(pairs)
    left, right = (max((len(pair[side]) for pair in listed), default=0) for side in (0, 1))
    return [f"{value:>{left}} {f'({interval})':<{right + 2}}" for value, interval in listed]
