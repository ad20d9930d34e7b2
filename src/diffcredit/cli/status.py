"""``diffcredit status``: how far a study is."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from diffcredit.cli.console import console, duration, say, table
from diffcredit.cli.options import StudyArgument
from diffcredit.errors import UserError
from diffcredit.util.progress import rates

if TYPE_CHECKING:
    from diffcredit.credit.stopping import RuleStatus
    from diffcredit.study.status import RecipeStatus, Status, StatusReader
    from diffcredit.study.study import Study

MOST_FAILURES, MOST_WORKERS = 5, 20
LONGEST_COALITION = 12  # characters
MOST_WORK = 1e9  # multiplications for credits, properties × evaluations × contributors²: what takes about a second


def status(
    study: StudyArgument,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between updates with --watch.")] = 2.0,
    price: Annotated[
        float | None,
        typer.Option(min=0.0, help="Price of a worker's hour, for the cost. Default: the stopping rule's."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object, for scripts; with --watch, one per line.")
    ] = False,
) -> None:
    """Show how far a study is: evaluations done and failed, workers, when it stops, how precise the credits are."""
    from diffcredit.study.status import StatusReader
    from diffcredit.study.study import Study

    loaded = Study.load(study)
    reader = StatusReader(loaded, price, live=watch)
    if watch:
        follow(loaded, reader, every, json=json)
        return
    facts = reader.read()
    if json:
        typer.echo(dumps(asdict(facts)))
        return
    show(loaded, facts)
    for recipe in facts.recipes:
        if recipe.name == loaded.recipe.name and recipe.done + recipe.failed:
            print_credits_so_far(loaded, recipe.done)
    if facts.recipes:
        with loaded.ledger(create=False) as ledger:
            head = ledger.head(loaded.name)
        if head.number:  # with it, verify can check later that the rows so far are unchanged
            say(f"Head of the ledger's {head.number:,} rows: {head.hash}")


def follow(study: "Study", reader: "StatusReader", every: float, *, json: bool) -> None:
    """Show a study's status until Ctrl-C: in place on a terminal, otherwise one below the other."""
    from rich.live import Live

    try:
        if json or not console.is_terminal:
            while True:
                facts = reader.read()
                if json:
                    typer.echo(dumps(asdict(facts)))
                else:
                    say(f"{study.name}, {facts.time}")
                    show(study, facts)
                console.file.flush()  # files and pipes are buffered
                time.sleep(every)
        with Live("reading the ledger", console=console, auto_refresh=False) as live:
            while True:
                facts = reader.read()
                title = Text(f"{study.name}, {facts.time}; Ctrl-C ends this view, not the study", "bold")
                not_ready = without_evaluations(study, facts)
                live.update(Group(title, *([Text(not_ready)] if not_ready else []), view(facts)), refresh=True)
                time.sleep(every)
    except KeyboardInterrupt:
        return


def show(study: "Study", facts: "Status") -> None:
    if not_ready := without_evaluations(study, facts):
        say(not_ready)
    if facts.recipes:
        console.print(view(facts))


def without_evaluations(study: "Study", facts: "Status") -> str | None:
    """Return a line for a study whose recipe the ledger does not know yet; None if it does."""
    if any(recipe.name == study.recipe.name for recipe in facts.recipes):
        return None
    most = study.config.stop.rule.max_evaluations()
    of = "" if most is None else f" of {facts.endpoints + most}"
    return f"{study.recipe.name}: 0{of} evaluations; the model is not ready for them yet"


def print_credits_so_far(study: "Study", evaluations: int) -> None:
    with study.ledger(create=False) as ledger:
        n, properties = len(ledger.settings(study.name)["contributors"]), len(study.measured(ledger))
    if properties * evaluations * n * min(evaluations, n) > MOST_WORK:
        say(f"How precise the credits of {n:,} contributors are: diffcredit credits, which takes longer than a status")
        return
    try:
        credits = study.credits()
    except UserError as error:
        say(str(error))
        return
    for name, credit in credits.items():
        apart = int((abs(credit.values - credit.average) > credit.contrast_half_width).sum())
        predicted = credit.diagnostics.get("predicted_correlation")
        known = f"predicted correlation with the exact credits {predicted:.2f}" if predicted is not None else ""
        say(
            f"{name}: {apart} of {len(credit.values)} contributors differ from the average beyond their interval; "
            f"{known or f'by {credit.method}'}"
        )


def view(facts: "Status") -> RenderableType:
    """Return the whole status as tables, the recipes first; nothing if there is none."""
    if not facts.recipes:
        return Group()
    parts = [_recipes(facts)]
    if any(recipe.worker_hours for recipe in facts.recipes):
        parts.append(_pace(facts))
    studied = next((recipe for recipe in facts.recipes if recipe.name == facts.studied), None)
    if facts.rule is not None and studied is not None and studied.done + studied.failed:
        parts.append(_rule(facts, facts.rule, studied))
    if facts.failures:
        parts.append(_failures(facts))
    if facts.workers:
        parts.append(_workers(facts))
    if facts.drivers:
        parts.append(_drivers(facts))
    return Group(*parts)


def _recipes(facts: "Status") -> Table:
    rows = []
    for recipe in facts.recipes:
        of = "" if recipe.total is None else f" of {'' if recipe.certain else 'about '}{recipe.total}"
        left = "" if recipe.seconds_left is None else duration(recipe.seconds_left) if recipe.seconds_left else "done"
        rows.append((recipe.name, f"{recipe.done}{of}", str(recipe.failed), str(recipe.under_way), left))
    return table(("recipe", "done", "failed attempts", "under way", "time left"), rows)


def _pace(facts: "Status") -> Table:
    from diffcredit.study.status import WINDOW

    others = any(recipe.others for recipe in facts.recipes)
    money = any(recipe.cost is not None for recipe in facts.recipes)
    names = [*(["others done"] if others else []), f"last {WINDOW / 60:.0f} min", "overall", "worker-hours", "left"]
    per_minute = [rate for recipe in facts.recipes for rate in (recipe.per_minute_lately, recipe.per_minute_overall)]
    pace = iter(rates([None if rate is None else rate / 60 for rate in per_minute]))  # of all recipes in one unit
    rows = [
        (
            recipe.name,
            *([str(recipe.others)] if others else []),
            next(pace),
            next(pace),
            _number(recipe.worker_hours, ",.3g"),
            _number(recipe.worker_hours_left, ",.3g"),
            *([_number(recipe.cost, ",.2f"), _number(recipe.cost_left, ",.2f")] if money else []),
        )
        for recipe in facts.recipes
    ]
    return table(("pace", *names, *(["cost", "left"] if money else [])), rows)


def _rule(facts: "Status", rule: "RuleStatus", recipe: "RecipeStatus") -> Table:
    """Return a table of the stopping rule and its parts: target, present state, and when each should be reached."""
    made, each = recipe.done - facts.endpoints, recipe.seconds_each
    lines = []
    for depth, part in _nested(rule):
        expected = part.evaluations
        wait = duration(max(0, expected - made) * each) if each and expected is not None and not rule.reached else ""
        evaluations = "not known yet" if expected is None else f"≈ {expected:,}"
        lines.append(("  " * depth + part.wanted, part.now, evaluations, "reached" if part.reached else wait))
    return table(("stops at", "now", "evaluations", "time left"), lines)


def _nested(rule: "RuleStatus", depth: int = 0) -> "Iterator[tuple[int, RuleStatus]]":
    yield depth, rule
    for part in rule.parts:
        yield from _nested(part, depth + 1)


def _failures(facts: "Status") -> Table:
    rows = [
        (each.recipe, str(each.count), Text(each.error, no_wrap=True, overflow="ellipsis")) for each in facts.failures
    ]
    return _shortened(table(("failures", "times", "error"), rows[:MOST_FAILURES], left=["error"]), len(rows))


def _workers(facts: "Status") -> Table:
    rows = [
        (
            worker.name,
            worker.recipe,
            str(worker.done),
            str(worker.failed),
            _mean(worker.mean_seconds),
            "" if worker.coalition is None else _task(worker.coalition, worker.replicate or 0),
            f"seen {duration(worker.last_seen)} ago" if worker.busy_seconds is None else duration(worker.busy_seconds),
        )
        for worker in facts.workers[:MOST_WORKERS]
    ]
    columns = ("worker", "recipe", "done", "failed", "mean", "now at", "since")
    return _shortened(table(columns, rows, left=["recipe"], folded=["recipe"]), len(facts.workers))


def _drivers(facts: "Status") -> Table:
    rows = [
        (driver.holder, driver.recipe, str(driver.tasks), duration(driver.expires_in))
        for driver in facts.drivers[:MOST_WORKERS]
    ]
    columns = ("driver", "recipe", "tasks", "claims expire in")
    return _shortened(table(columns, rows, left=["recipe"], folded=["recipe"]), len(facts.drivers))


def _shortened(grid: Table, count: int) -> Table:
    """Return the table with a last line that says how many of ``count`` rows it leaves out."""
    if count > grid.row_count:
        grid.add_row(f"and {count - grid.row_count:,} more", style="dim")
    return grid


def _task(coalition: str, replicate: int) -> str:
    """Return a coalition, or its size if it is long, and its replicate unless that is 0."""
    size = f"{coalition.count('1')} of {len(coalition)}"
    return f"{coalition if len(coalition) <= LONGEST_COALITION else size}{f' #{replicate}' if replicate else ''}"


def _number(value: float | None, spec: str) -> str:
    return "" if value is None else format(value, spec)


def _mean(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f} s" if seconds < 10 else duration(seconds)
