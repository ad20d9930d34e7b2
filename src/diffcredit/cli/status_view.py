"""A study's status as tables for a terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from diffcredit.cli.console import duration
from diffcredit.credit.stopping import RuleStatus
from diffcredit.study.status import WINDOW, RecipeStatus, Status

MOST_FAILURES, MOST_WORKERS = 5, 20
LONGEST_COALITION = 12  # characters


def view(facts: Status) -> RenderableType:
    """Return the whole status, the recipes first."""
    parts: list[RenderableType] = [_recipes(facts)]
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


def _recipes(facts: Status) -> Table:
    """Return a table with a line for each recipe; only the study's own has a total."""
    grid = _grid(("recipe", "done", "failed attempts", "under way", "time left"), "recipe")
    for recipe in facts.recipes:
        of = "" if recipe.total is None else f" of {'' if recipe.certain else 'about '}{recipe.total}"
        left = "" if recipe.seconds_left is None else duration(recipe.seconds_left) if recipe.seconds_left else "done"
        grid.add_row(Text(recipe.name), f"{recipe.done}{of}", str(recipe.failed), str(recipe.under_way), left)
    return grid


def _pace(facts: Status) -> Table:
    """Return a table of speed and cost, with evaluations outside the design if there are any."""
    others = any(recipe.others for recipe in facts.recipes)
    money = any(recipe.cost is not None for recipe in facts.recipes)
    names = [*(["others done"] if others else []), f"last {WINDOW / 60:.0f} min", "overall", "worker-hours", "left"]
    grid = _grid(("pace", *names, *(["cost", "left"] if money else [])), "pace")
    for recipe in facts.recipes:
        costs = [_number(recipe.cost, ",.2f"), _number(recipe.cost_left, ",.2f")] if money else []
        grid.add_row(
            Text(recipe.name),
            *([str(recipe.others)] if others else []),
            _rate(recipe.per_minute_lately),
            _rate(recipe.per_minute_overall),
            _number(recipe.worker_hours, ",.3g"),
            _number(recipe.worker_hours_left, ",.3g"),
            *costs,
        )
    return grid


def _rule(facts: Status, rule: RuleStatus, recipe: RecipeStatus) -> Table:
    """Return a table of the stopping rule and its parts: target, present state, and when each should be reached."""
    grid = _grid(("stops at", "now", "evaluations", "time left"), "stops at")
    made, each = recipe.done - facts.endpoints, recipe.seconds_each
    for depth, part in rows(rule):
        expected = part.evaluations
        wait = duration(max(0, expected - made) * each) if each and expected is not None and not rule.reached else ""
        grid.add_row(
            Text("  " * depth + part.wanted),  # a property's name is data, never markup
            Text(part.now),
            "not known yet" if expected is None else f"≈ {expected:,}",
            "reached" if part.reached else wait,
        )
    return grid


def rows(rule: RuleStatus, depth: int = 0) -> Iterator[tuple[int, RuleStatus]]:
    """Yield a rule and its parts, each with its depth of nesting."""
    yield depth, rule
    for part in rule.parts:
        yield from rows(part, depth + 1)


def _failures(facts: Status) -> Table:
    grid = _grid(("failures", "times", "error"), "failures", "error")
    for failure in facts.failures[:MOST_FAILURES]:
        grid.add_row(Text(failure.recipe), str(failure.count), Text(failure.error, no_wrap=True, overflow="ellipsis"))
    _more(grid, len(facts.failures) - MOST_FAILURES)
    return grid


def _workers(facts: Status) -> Table:
    """Return a table of the workers: what each does, or when it was last seen."""
    grid = _grid(("worker", "recipe", "done", "failed", "mean", "now at", "since"), "recipe")
    for worker in facts.workers[:MOST_WORKERS]:
        grid.add_row(
            Text(worker.name),
            Text(worker.recipe),
            str(worker.done),
            str(worker.failed),
            "" if worker.mean_seconds is None else _short(worker.mean_seconds),
            "" if worker.coalition is None else _task(worker.coalition, worker.replicate or 0),
            f"seen {duration(worker.last_seen)} ago" if worker.busy_seconds is None else duration(worker.busy_seconds),
        )
    _more(grid, len(facts.workers) - MOST_WORKERS)
    return grid


def _drivers(facts: Status) -> Table:
    grid = _grid(("driver", "recipe", "tasks", "claims expire in"), "recipe")
    for driver in facts.drivers[:MOST_WORKERS]:
        grid.add_row(Text(driver.holder), Text(driver.recipe), str(driver.tasks), duration(driver.expires_in))
    _more(grid, len(facts.drivers) - MOST_WORKERS)
    return grid


def _grid(columns: Sequence[str], *cut: str) -> Table:
    """Return a table whose first column and columns that may be ``cut`` are left-aligned texts, the others numbers."""
    grid = Table(box=None, header_style="bold cyan")
    for name in columns:
        left = name == columns[0] or name in cut
        grid.add_column(name, justify="left" if left else "right", no_wrap=name not in cut)
    return grid


def _more(grid: Table, count: int) -> None:
    if count > 0:
        grid.add_row(f"and {count:,} more", style="dim")


def _task(coalition: str, replicate: int) -> str:
    """Return a coalition, or its size if it is long, and its replicate unless that is 0."""
    size = f"{coalition.count('1')} of {len(coalition)}"
    return f"{coalition if len(coalition) <= LONGEST_COALITION else size}{f' #{replicate}' if replicate else ''}"


def _number(value: float | None, spec: str) -> str:
    return "" if value is None else format(value, spec)


def _rate(per_minute: float | None) -> str:
    if per_minute is None:
        return ""
    return f"{per_minute:.1f}/min" if per_minute >= 1 or per_minute == 0 else f"{60 * per_minute:.1f}/h"


def _short(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)
