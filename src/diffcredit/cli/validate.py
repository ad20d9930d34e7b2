"""``diffcredit validate``: the evidence for a study's credits."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import Bars, StudyArgument, console, duration, say, stopping_gently
from diffcredit.cli.failures import report_failures
from diffcredit.cli.opened import opened
from diffcredit.cli.where import with_where
from diffcredit.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diffcredit.execution import Executor
    from diffcredit.execution.timing.evaluation import EvaluationTime
    from diffcredit.study.workers import Workers
    from diffcredit.validation.contest import Work
    from diffcredit.validation.sections import Section
    from diffcredit.validation.study import Validation

PartOption = Annotated[
    list[str] | None,
    typer.Option(
        "--part",
        help="lds, surrogates, counterfactual, fidelity, convergence, budget, runtime, unlearning or contributors; "
        "may be repeated. Default: all.",
        show_default=False,
    ),
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option("--property", help="Only this one; may be repeated. Default: all.", show_default=False),
]
PlanOption = Annotated[bool, typer.Option("--plan", help="Only say which evaluations lack, and what they will cost.")]
EvaluatedOption = Annotated[
    bool, typer.Option("--evaluated", help="Only use what is evaluated already: nothing is retrained.")
]

MOST_ROWS, MOST_COLUMNS = 20, 7


@with_where
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
    from diffcredit.report.writing import write_results
    from diffcredit.study.evaluating import evaluate_tasks
    from diffcredit.study.workers import make_executor
    from diffcredit.validation.study import PARTS, Validation, parts_of

    for name in part or []:
        if name not in PARTS:
            raise UserError(f"--part {name!r}: accepted: {', '.join(PARTS)}")
    sections, reasons = [], {}
    with stopping_gently(), Bars() as bars, opened(study, bars, logged=not plan) as loaded:
        parts = [name for name in PARTS if name in part] if part else parts_of(loaded)
        validation = Validation(loaded, prop or [])
        # foreseen by another, for this one's scores must be of what will be evaluated, if anything will
        foreseeing = validation if evaluated else Validation(loaded, prop or [])
        tell_work(foreseeing, parts, where, evaluated=evaluated)
        if plan:
            return
        with make_executor(loaded, where).session() as executor:
            for name in parts:
                for work in [] if evaluated else possible_work(validation.work, name):
                    if work.missing():
                        report_failures(evaluate_tasks(work.recipe, executor, work.tasks, work.what))
                    try:
                        make_seen(work, executor)
                    except UserError as error:  # as of a recipe whose models are lost; the part may do without
                        reasons[f"{name}: {work.what}"] = error
                try:
                    sections.append(validation.section(name))
                except UserError as error:  # the other parts may still be had
                    reasons[name] = error
        if sections:
            try:
                write_results(loaded, retrain=False)
            except UserError as error:  # the sections are kept all the same
                reasons["report"] = error
    for section in sections:
        print_section(section)
        say(f"Files: {validation.folder(section.part)}")
    for reason in reasons.values():
        say(f"\nleft out: {reason}")
    if not sections:
        raise UserError("; ".join(map(str, reasons.values())))
    if "report" not in reasons:
        say(f"\nReport: {loaded.folder / 'report.html'}")


def make_seen(work: "Work", executor: "Executor") -> None:
    """Makes the images once more that are to be looked at and are not there."""
    from diffcredit.study.evaluating import keep_again

    if unseen := work.unseen():
        report_failures(keep_again(work.recipe, executor, unseen, f"{work.what}, images again"), recorded=False)


def tell_work(validation: "Validation", parts: "Sequence[str]", where: "Workers", *, evaluated: bool) -> None:
    """Says how many evaluations lack, of which recipe, and what they will cost; nothing where none does. Of what
    a part asks for only once another is there, the most that it may be."""
    from rich.table import Table
    from rich.text import Text

    from diffcredit.study.plan import evaluation_time
    from diffcredit.study.workers import make_executor, side_by_side

    lacking: dict[str, tuple[Work, int]] = {}
    told: set[tuple[str, str, int]] = set()  # what one part evaluates, another finds
    for name in parts:
        for work in possible_work(partial(validation.foreseen, parts=parts), name):
            tasks = [*work.missing(), *work.unseen()]
            missing = {(work.recipe.name, task.coalition, task.replicate) for task in tasks} - told
            told |= missing
            if missing or work.unforeseen:
                lacking[work.what] = work, len(missing) + work.unforeseen
    if not lacking:
        return
    at_a_time = side_by_side(make_executor(validation.study, where))
    times: dict[str, EvaluationTime] = {}
    for work, _ in lacking.values():
        if work.recipe.name not in times:
            times[work.recipe.name] = evaluation_time(work.recipe)
    title = "Evaluations that the evidence lacks" + (", left out as asked" if evaluated else "")
    grid = Table(box=None, title=Text(f"\n{title}", "bold"), title_justify="left")
    grid.add_column("what for", overflow="fold")
    for column in ("models", "each", "time"):
        grid.add_column(column, justify="right", no_wrap=True)
    total = 0.0
    for what, (work, missing) in lacking.items():
        each = times[work.recipe.name]
        seconds = each.of_all(missing, at_a_time)
        total += seconds
        up_to = "up to " if work.unforeseen else ""
        grid.add_row(Text(what), f"{up_to}{missing:,}", duration(each.each(at_a_time)), duration(seconds))
    models = sum(missing for _, missing in lacking.values())
    up_to = "up to " if any(work.unforeseen for work, _ in lacking.values()) else ""
    grid.add_row("in all", f"{up_to}{models:,}", "", duration(total), style="bold")
    console.print(grid)


def possible_work(work: "Callable[[str], list[Work]]", part: str) -> "list[Work]":
    """What a part asks for; nothing where that cannot be told, for a reason that its section will give."""
    try:
        return work(part)
    except UserError:
        return []


def print_section(section: "Section") -> None:
    """A part's sentences, and its first table where a terminal can show it."""
    from rich.table import Table
    from rich.text import Text

    from diffcredit.report.validation import cell_text

    say(f"\n{section.title}")
    for sentence in section.summary:
        say(f"  {sentence}")
    table = section.tables[0]
    if len(table.columns) > MOST_COLUMNS:
        return
    grid = Table(box=None, title=Text(f"\n{table.title}", "bold"), title_justify="left")
    for column in table.columns:
        grid.add_column(Text(column), overflow="fold")
    for row in table.rows[:MOST_ROWS]:
        grid.add_row(*(Text(cell_text(cell, table.decimals)) for cell in row))
    console.print(grid)
    if len(table.rows) > MOST_ROWS:
        say(f"… and {len(table.rows) - MOST_ROWS} more rows in {table.name}.csv")
