"""``diffcredit pilot``: noise and signal from a few evaluations, before the whole study is paid for."""

from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import Bars, console, report_failures, say, stopping_gently, table
from diffcredit.cli.near_copies import tell_near_copies
from diffcredit.cli.opened import opened
from diffcredit.cli.options import StudyArgument

if TYPE_CHECKING:
    from diffcredit.study.recipe import Recipe
    from diffcredit.study.workers import Workers


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
        executor = make_executor(loaded, where)
        tell_near_copies(loaded)
        recipes = [loaded.recipe, *(other_recipes(loaded) if compare else ())]
        for each in recipes:
            report_failures(run_pilot(each, executor, coalitions, replicates))
    truth = truth_of(recipes) if compare else None
    for each in recipes:
        print_pilot(each, None if each is truth else truth)


def print_pilot(recipe: "Recipe", truth: "Recipe | None" = None) -> None:
    """Print each property's noise and signal by the pilot, and its correlation with ``truth``; nothing without one."""
    from diffcredit.study.pilot import likeness, pilots, signal_sentences

    found = pilots(recipe)
    if not found:
        return
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
    for sentence in signal_sentences(recipe):
        say(sentence)
