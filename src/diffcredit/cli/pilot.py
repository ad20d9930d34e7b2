"""``diffcredit pilot``: noise and signal from a few evaluations, before the whole study is paid for."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import Bars, console, report_failures, say, stopping_gently, table
from diffcredit.cli.opened import opened
from diffcredit.cli.options import StudyArgument

if TYPE_CHECKING:
    from diffcredit.credit.planning import Pilot
    from diffcredit.study.recipe import Recipe
    from diffcredit.study.workers import Workers

TARGET = 0.9  # the correlation with the exact credits for which evaluations are estimated
REMEDIES = (
    "annealing and tail averaging, if they are off (retraining.schedule: cosine, retraining.average_tail: 0.25); more "
    "fine-tuning steps; a base model trained for longer"
)


def pilot(
    study: StudyArgument,
    coalitions: Annotated[int, typer.Option(min=2, help="Coalitions of half the contributors.")] = 4,
    replicates: Annotated[int, typer.Option(min=2, help="Seeds per coalition.")] = 3,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also pilot the retrainings under validation, and from scratch.")
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
    """Print each property's noise and signal by the pilot, and its correlation with ``truth``; nothing without one."""
    from diffcredit.study.pilot import likeness, pilot_evaluations, pilots

    found = pilots(recipe)
    if not found:
        return
    n = len(pilot_evaluations(recipe)[0].coalition)
    some = next(iter(found.values()))
    title = (
        f"Pilot of {recipe.name}: {some.evaluations} evaluations of {some.coalitions} coalitions of half the "
        "contributors; standard deviations between"
    )
    alike = {} if truth is None else likeness(recipe, truth)
    columns = ["property", "seeds", "images", "coalitions", "signal/noise", "90% interval"]
    rows = [
        (
            name,
            f"{result.within:.3g}",
            "not known" if result.images is None else f"{result.images:.3g}",
            f"{result.between:.3g}",
            f"{result.ratio:.2g}",
            f"{result.low:.2g} to {result.high:.2g}",
            *([f"{alike[name]:.2f}"] if name in alike else []),
        )
        for name, result in found.items()
    ]
    console.print(table([*columns, "fidelity"] if alike else columns, rows, title=title))
    for name, result in found.items():
        say(f"{name}: {conclusion(result, n, recipe.study.config.design.distribution)}")


def conclusion(result: "Pilot", n: int, design: str) -> str:
    """Return how many evaluations are needed, or that there is too much noise and what helps."""
    from diffcredit.credit.planning import evaluations_needed
    from diffcredit.study.pilot import QUIET_ENOUGH, pilot_size

    size = pilot_size(n)
    best, likely, worst = (  # even without noise, n contributors need n evaluations
        max(n, evaluations_needed(ratio, size, n, design, TARGET)) for ratio in (result.high, result.ratio, result.low)
    )
    if result.ratio >= QUIET_ENOUGH:
        return (
            f"about {_count(likely)} evaluations should reach a correlation of {TARGET:g} with the exact credits "
            f"(could be from {_count(best)} to {_count(worst)}); more if members matter only together"
        )
    verdict = f"likely hopeless: signal/noise seems below {QUIET_ENOUGH}, though a larger pilot may find more"
    if result.high < QUIET_ENOUGH:
        verdict = f"hopeless: signal/noise is below {QUIET_ENOUGH}, and at least {_count(best)} evaluations are needed"
    from_images = result.images is not None and result.images**2 > result.within**2 / 2
    images = "more sampling.images, since most of the noise comes from them; " if from_images else ""
    return f"{verdict}. What helps: {images}{REMEDIES}"


def _count(evaluations: float) -> str:
    """Return a number of evaluations with two digits; more are not known."""
    if not math.isfinite(evaluations):
        return "very many"
    if evaluations < 100:
        return f"{max(1, math.ceil(evaluations))}"
    return f"{int(float(f'{evaluations:.1e}')):,}"
