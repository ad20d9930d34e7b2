"""``diffcredit credits``: the credits of a study as a table, CSV or JSON."""

import dataclasses
import json
import math
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffcredit.cli.console import StudyArgument, console
from diffcredit.errors import UserError

if TYPE_CHECKING:
    from diffcredit.report import CreditTable


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"


def credits(
    study: StudyArgument,
    property: Annotated[str | None, typer.Option(help="Only this property.", show_default=False)] = None,
    method: Annotated[str, typer.Option(help="shapley, kernelshap or exact.")] = "shapley",
    confidence: Annotated[float, typer.Option(min=0.01, max=0.999, help="Of the intervals.")] = 0.95,
    format: Annotated[Format, typer.Option(help="How to print them.")] = Format.table,
) -> None:
    """Print the credits from all evaluations so far."""
    from diffcredit.report.spreadsheet import credits_csv
    from diffcredit.report.tables import credit_tables
    from diffcredit.study import Study

    tables = credit_tables(Study.load(study), method, confidence)
    if property is not None:
        names = [table.property for table in tables]
        if property not in names:
            raise UserError(f"--property: {property!r} is not measured in this study; accepted: {', '.join(names)}")
        tables = tuple(table for table in tables if table.property == property)
    if format is Format.csv:
        typer.echo(credits_csv(tables), nl=False)
    elif format is Format.json:
        content = [_finite(dataclasses.asdict(table)) for table in tables]
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print_credits(tables)


def _finite(value: Any) -> Any:
    """``value`` with null in place of numbers that JSON does not know: intervals that are not known yet."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_credits(tables: "Sequence[CreditTable]") -> None:
    """One table a property, most helpful contributor first."""
    from rich.table import Table
    from rich.text import Text

    from diffcredit.report.numbers import credit_decimals, number, percent
    from diffcredit.report.standings import average_credit, standings

    for table in tables:
        direction = "higher is better" if table.higher_is_better else "lower is better: a negative credit helps"
        title = Text(f"\n{table.title} ({direction})", "bold")
        grid = Table(title=title, title_justify="left", box=None)
        for name in (
            "rank",
            "contributor",
            "images",
            "credit",
            f"{100 * table.confidence:g}% interval",
            "share",
            "",
        ):
            if name == "contributor":  # long names fold, so that no one is cut short
                grid.add_column(name, overflow="fold", min_width=12)
            else:
                grid.add_column(name, justify="right", no_wrap=True)
        digits = credit_decimals(table)
        rows = standings(table)
        for row in rows:
            interval = f"{number(row.low, digits)} to {number(row.high, digits)}" if row.interval_known else "not known"
            mark = {"more": "helps more", "less": "helps less", "unsettled": ""}[row.versus_average]
            grid.add_row(
                str(row.rank),
                Text(row.contributor),  # a name is data, never markup
                str(row.images),
                number(row.credit, digits),
                interval,
                percent(row.share, 1) if row.share is not None else "",
                mark,
            )
        console.print(grid)
        console.print(
            f"sum {number(table.full - table.empty, digits)} = F(all) {number(table.full, digits)} − F(none) "
            f"{number(table.empty, digits)}; average {number(average_credit(table), digits)}; "
            f"{table.evaluations} evaluations, {table.failed} failed; {table.method}",
            highlight=False,
            soft_wrap=True,
            style="dim",
        )
