"""``diffcredit validate``: the evidence for a study's credits."""

from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import Bars, console, duration, report_failures, say, stopping_gently, table
from diffcredit.cli.opened import opened
from diffcredit.cli.options import StudyArgument
from diffcredit.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from diffcredit.study.study import Study
    from diffcredit.study.workers import Workers
    from diffcredit.validation.presentation.sections import Section
    from diffcredit.validation.validate import Missing

PartOption = Annotated[
    list[str] | None,
    typer.Option(
        "--part",
        help="lds, surrogates, counterfactual, fidelity, convergence, budget, runtime, unlearning or contributors; "
        "may be repeated. Default: all.",
    ),
]
PropertyOption = Annotated[
    list[str] | None, typer.Option("--property", help="Only this one; may be repeated. Default: all.")
]
PlanOption = Annotated[
    bool, typer.Option("--plan", help="Show which evaluations are missing and what they would cost.")
]
EvaluatedOption = Annotated[
    bool, typer.Option("--evaluated", help="Use only what is evaluated already: nothing is retrained.")
]

MOST_ROWS, MOST_COLUMNS = 20, 7


def validate(
    study: StudyArgument,
    part: PartOption = None,
    prop: PropertyOption = None,
    plan: PlanOption = False,
    evaluated: EvaluatedOption = False,
    *,
    where: "Workers",
) -> None:
    """Test a study's credits against models retrained from scratch, and put the evidence into its report."""
    from diffcredit.report.composing import write_results
    from diffcredit.study.workers import make_executor
    from diffcredit.validation import validate as validation

    for name in part or []:
        if name not in validation.PARTS:
            raise UserError(f"--part {name!r}: accepted: {', '.join(validation.PARTS)}")
    asked, report_error = (part or [], prop or []), None
    with stopping_gently(), Bars() as bars, opened(study, bars, logged=not plan) as loaded:
        missing = validation.missing_evaluations(loaded, *asked, planned=plan)
        print_missing(missing, loaded, where, evaluated=evaluated)
        if plan:
            for reason in dict.fromkeys(missing.left_out.values()):
                names = ", ".join(name for name, why in missing.left_out.items() if why == reason)
                say(f"left out: {names}: {reason}")
            return
        with make_executor(loaded, where).session() as executor:
            found = validation.validate(
                loaded,
                *asked,
                executor=None if evaluated else executor,
                watch=lambda evaluations, recorded: report_failures(evaluations, recorded=recorded),
            )
        if found.sections:
            try:
                write_results(loaded, retrain=False)
            except UserError as error:  # the sections are kept all the same
                report_error = error
    for section in found.sections:
        print_section(section)
        say(f"Files: {validation.section_folder(loaded, section.part)}")
    reasons = [*found.left_out.values(), *([str(report_error)] if report_error else [])]
    for reason in reasons:
        say(f"\nleft out: {reason}")
    if not found.sections:
        raise UserError("; ".join(reasons))
    if report_error is None:
        say(f"\nReport: {loaded.folder / 'report.html'}")


def print_missing(missing: "Missing", study: "Study", where: "Workers", *, evaluated: bool) -> None:
    """Print how many evaluations are missing, by which recipe, what they and the baselines will cost, and what there is
    less of than asked."""
    if missing.work or missing.baselines:
        console.print(_costs(missing, study, where, evaluated=evaluated))
    for note in missing.notes:
        say(note)


def _costs(missing: "Missing", study: "Study", where: "Workers", *, evaluated: bool) -> "Table":
    from diffcredit.baselines.selection import expected_seconds
    from diffcredit.study.plan import evaluation_time
    from diffcredit.study.workers import make_executor, side_by_side

    at_a_time = side_by_side(make_executor(study, where))
    recipes = {work.recipe.name: work.recipe for work, _ in missing.work}
    times = {name: evaluation_time(recipe) for name, recipe in recipes.items()}
    rows, total = [], 0.0
    for work, count in missing.work:
        time = times[work.recipe.name]
        seconds = time.of_all(count, at_a_time)
        total += seconds
        up_to = "up to " if work.undecided else ""
        rows.append((work.what, f"{up_to}{count:,}", duration(time.each(at_a_time)), f"{up_to}{duration(seconds)}"))
    if missing.baselines:
        seconds = expected_seconds(study, missing.baselines)
        total += seconds
        rows.append((f"{len(missing.baselines)} baselines", "", "", duration(seconds)))
    up_to = "up to " if any(work.undecided for work, _ in missing.work) else ""
    title = "Evaluations missing from the evidence" + (", left out as asked" if evaluated else "")
    grid = table(("what for", "models", "each", "time"), rows, title=title)
    count = sum(count for _, count in missing.work)
    grid.add_row("in all", f"{up_to}{count:,}", "", f"{up_to}{duration(total)}", style="bold")
    return grid


def print_section(section: "Section") -> None:
    """Print a part's sentences, and its first table where a terminal can show it."""
    from diffcredit.report.validation import cell_text

    say(f"\n{section.title}")
    for sentence in section.summary:
        say(f"  {sentence}")
    first = section.tables[0]
    if len(first.columns) > MOST_COLUMNS:
        return
    rows = [[cell_text(cell, first.decimals) for cell in row] for row in first.rows[:MOST_ROWS]]
    console.print(table(first.columns, rows, left=first.columns, title=first.title))
    if len(first.rows) > MOST_ROWS:
        say(f"… and {len(first.rows) - MOST_ROWS} more rows in {first.name}.csv")
