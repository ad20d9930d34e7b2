"""``diffcredit credits``: the credits of a study as a table, CSV or JSON."""

import dataclasses
import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from diffcredit.cli.console import print_json
from diffcredit.cli.options import ConfidenceOption, EstimatorOption, StudyArgument
from diffcredit.errors import UserError, located

if TYPE_CHECKING:
    from diffcredit.report import CreditTable

WORDING = ("differences", "relative", "steps")  # fields of a table that only the report reads


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
    shares: Annotated[
        bool, typer.Option("--shares", help="Show shares also where the reference is an untrained network.")
    ] = False,
) -> None:
    """Print the verdict on each property, and the help and credits from all evaluations so far."""
    from diffcredit.cli.credit_tables import print_tables, warn_of_lack_of_fit
    from diffcredit.report.standings import credits_csv

    if mix is None:
        tables = _tables(study, property, method, confidence, shares=shares)
    elif property is None:
        tables = (_mixed(study, mix, method, confidence, shares=shares),)
    else:
        raise UserError("--property and --mix: both given; one of them is accepted")
    if format == "csv":
        typer.echo(credits_csv(tables), nl=False)
    elif format == "json":
        print_json([_content(each) for each in tables])
    else:
        print_tables(tables)
    warn_of_lack_of_fit(tables)


def _tables(
    study: str, property: str | None, method: str | None, confidence: float, *, shares: bool
) -> "tuple[CreditTable, ...]":
    from diffcredit.report.tables import credit_tables
    from diffcredit.study.study import Study

    tables = credit_tables(Study.load(study), method, confidence, shares=shares)
    if property is None:
        return tables
    names = [table.property for table in tables]
    if property not in names:
        raise UserError(f"--property: {property!r} is not measured in this study; accepted: {', '.join(names)}")
    return tuple(table for table in tables if table.property == property)


def _mixed(study: str, text: str, method: str | None, confidence: float, *, shares: bool) -> "CreditTable":
    from diffcredit.credit import mix
    from diffcredit.report.tables import mixed_table
    from diffcredit.study.study import Study

    weights = parse_weights(text)
    loaded = Study.load(study)
    credits = loaded.credits(method, confidence)
    with located("--mix"):
        mixed = mix(credits, weights)
    return mixed_table(loaded, mixed, next(iter(credits.values())).method, shares=shares)


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
    columns = ("rank", "share", "help", "help_low", "help_high", "matters")
    places = {name: [getattr(row, name) for row in ordered] for name in columns}
    content = {name: value for name, value in dataclasses.asdict(credits).items() if name not in WORDING}
    reference = {**dataclasses.asdict(credits.reference), "value": credits.empty}
    return content | places | {"reference": reference}
