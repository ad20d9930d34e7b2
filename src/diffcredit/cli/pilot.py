"""``diffcredit pilot``: noise and signal from a handful of evaluations, before the money is spent."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import Bars, StudyArgument, console, say, stopping_gently
from diffcredit.cli.failures import report_failures
from diffcredit.cli.opened import opened
from diffcredit.cli.where import with_where

if TYPE_CHECKING:
    from diffcredit.credit.pilot import Pilot
    from diffcredit.study.recipe import Recipe
    from diffcredit.study.workers import Workers

TARGET = 0.9  # the correlation whose price is told


@with_where
def pilot(
    study: StudyArgument,
    coalitions: Annotated[int, typer.Option(min=2, help="Coalitions of half the contributors.")] = 4,
    replicates: Annotated[int, typer.Option(min=2, help="Seeds of each.")] = 3,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also by the retrainings under validation, and from scratch.")
    ] = False,
    *,
    where: "Workers",
) -> None:
    """Measure noise and signal with a few evaluations, and estimate how many a study needs."""
    from diffcredit.study.pilot import other_recipes, run_pilot, truth_of
    from diffcredit.study.workers import make_executor

    with stopping_gently(), Bars() as bars, opened(study, bars) as loaded:
        recipes = [loaded.recipe, *(other_recipes(loaded) if compare else ())]
        for each in recipes:
            report_failures(run_pilot(each, make_executor(loaded, where), coalitions, replicates))
    truth = truth_of(recipes) if compare else None
    for each in recipes:
        print_pilot(each, None if each is truth else truth)


def print_pilot(recipe: "Recipe", truth: "Recipe | None" = None) -> None:
    """What the pilot tells of each property, and how its values go along with those of ``truth``; nothing where there
    was none."""
    from rich.table import Table
    from rich.text import Text

    from diffcredit.study.pilot import likeness, pilot_evaluations, pilots

    found = pilots(recipe)
    if not found:
        return
    n = len(pilot_evaluations(recipe)[0].coalition)
    some = next(iter(found.values()))
    title = (
        f"\nPilot of {recipe.name}: {some.evaluations} evaluations of {some.coalitions} coalitions of half the "
        "contributors; standard deviations between"
    )
    grid = Table(box=None, title=Text(title, "bold"), title_justify="left")
    grid.add_column("property", overflow="fold")
    alike = {} if truth is None else likeness(recipe, truth)
    for column in ("seeds", "images", "coalitions", "signal/noise", "90% interval", *(["fidelity"] * bool(alike))):
        grid.add_column(column, justify="right", no_wrap=True)
    for name, told in found.items():
        grid.add_row(
            Text(name),
            f"{told.within:.3g}",
            "not known" if told.images is None else f"{told.images:.3g}",
            f"{told.between:.3g}",
            f"{told.ratio:.2g}",
            f"{told.low:.2g} to {told.high:.2g}",
            *([f"{alike[name]:.2f}"] if name in alike else []),
        )
    console.print(grid)
    for name, told in found.items():
        say(f"{name}: {meaning(told, n, recipe.study.config.design.distribution)}")


def meaning(told: "Pilot", n: int, design: str) -> str:
    """In a sentence: how many evaluations it takes, or that it is hopeless, and what helps."""
    from diffcredit.credit.pilot import evaluations_needed
    from diffcredit.study.pilot import QUIET_ENOUGH, pilot_size

    size = pilot_size(n)
    best, likely, worst = (  # however little noise there is, as many as contributors are needed to tell them apart
        max(n, evaluations_needed(ratio, size, n, design, TARGET)) for ratio in (told.high, told.ratio, told.low)
    )
    if told.ratio >= QUIET_ENOUGH:
        return (
            f"about {_count(likely)} evaluations for a correlation of {TARGET:g} with the credits of endless ones, "
            f"85 % sure ({_count(best)} to {_count(worst)} by the interval), more where members "
            "matter only together"
        )
    return f"{_verdict(told, best)}. What helps: {'; '.join(_remedies(told))}"


def _verdict(told: "Pilot", best: float) -> str:
    from diffcredit.study.pilot import QUIET_ENOUGH

    if told.high < QUIET_ENOUGH:
        return f"hopeless: signal/noise is under {QUIET_ENOUGH}, and {_count(best)} evaluations would be the least"
    return f"likely hopeless: signal/noise seems under {QUIET_ENOUGH}, though a larger pilot may find more"


def _remedies(told: "Pilot") -> list[str]:
    remedies = [
        "annealing and tail averaging, if they are off (retraining.schedule: cosine, retraining.average_tail: 0.25)",
        "more fine-tuning steps",
        "a base model trained for longer",
    ]
    if told.images is not None and told.images**2 > told.within**2 / 2:
        remedies.insert(0, "more sampling.images, from which most of the noise comes")
    return remedies


def _count(evaluations: float) -> str:
    """Two digits: no more is known."""
    if not math.isfinite(evaluations):
        return "endless"
    if evaluations < 100:
        return f"{max(1, math.ceil(evaluations))}"
    return f"{int(float(f'{evaluations:.1e}')):,}"
