"""``diffcredit baselines``: credits without retraining, compared with the study's own."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffcredit.cli.console import Bars, StudyArgument, console, duration, say, stopping_gently
from diffcredit.cli.opened import opened
from diffcredit.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffcredit.baselines.study import StudyBaseline
    from diffcredit.study.study import Study

MethodOption = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        help="A method's name, a plug-in package.module:Class, or a mapping with options such as "
        "'{name: trak, dimensions: 4096}'. Default: all that this study supports.",
        show_default=False,
    ),
]


MOST_COLUMNS = 4  # properties side by side
NAME_WIDTH = 30  # names without options fit


def baselines(study: StudyArgument, method: MethodOption = None) -> None:
    """Credit contributors by cheaper methods, and compare them with the study's own credits."""
    from diffcredit.baselines.study import kept_baselines, run_baselines
    from diffcredit.report.baselines import write_baselines_csv
    from diffcredit.report.writing import write_results

    with stopping_gently(), Bars() as bars, opened(study, bars) as loaded:
        found = run_baselines(loaded, [parsed(text) for text in method or []])
        file = loaded.folder / "baselines.csv"
        write_baselines_csv(
            kept_baselines(loaded), loaded.contributions.contributors, file
        )  # with those of earlier runs
        with suppress(UserError):  # there are no credits yet
            write_results(loaded, retrain=False)
    print_baselines(loaded, found)
    say(f"\nTable: {file}")


def parsed(text: str) -> dict[str, Any]:
    """Parse a name, or a mapping with a name, from the command line."""
    from diffcredit.util.yamlfile import parse_yaml

    value = parse_yaml(text, "--method")
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise UserError(f"--method: {text!r} is not accepted; a name, package.module:Class, or a mapping with a name")
    return value


def print_baselines(study: "Study", found: "Sequence[StudyBaseline]") -> None:
    """Print a line for each method: its correlations with the study's credits, its time, and what it chose."""
    from textwrap import fill

    from rich.table import Table
    from rich.text import Text

    from diffcredit.report.baselines import compared, study_helpfulness

    credits = study_helpfulness(study)
    rows, names = compared(found, credits), list(credits)
    for start in range(0, max(1, len(names)), MOST_COLUMNS):  # one table for every few properties
        some = names[start : start + MOST_COLUMNS]
        title = "\nBaselines" + ("; rank correlation with the study's credits for" if some else "")
        grid = Table(box=None, title=Text(title, "bold"), title_justify="left")
        grid.add_column("method", no_wrap=True)
        for name in some:
            grid.add_column(Text(name), justify="right", overflow="fold")
        grid.add_column("time", justify="right", no_wrap=True)
        grid.add_column("chosen", overflow="fold")
        for row in rows:
            shown = [row.correlations[name] for name in some]
            cells = ["" if value is None else f"{value:+.2f}" for value in shown]
            chosen = ", ".join(f"{key} {value:.3g}" for key, value in row.chosen.items())
            name = fill(row.name, NAME_WIDTH, break_long_words=False, break_on_hyphens=False)
            grid.add_row(Text(name), *cells, duration(row.seconds), Text(chosen))
        console.print(grid)
