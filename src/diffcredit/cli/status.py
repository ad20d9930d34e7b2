"""``diffcredit status``: how far a study is."""

from datetime import datetime
from typing import TYPE_CHECKING

from diffcredit.cli.console import StudyArgument, console, duration, say
from diffcredit.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from diffcredit.ledger import Evaluation
    from diffcredit.study import Study

RECENT = 50  # evaluations that tell the present rate


def status(study: StudyArgument) -> None:
    """Show how far a study is: evaluations done and failed, rate, time left, how settled the credits are."""
    from diffcredit.ledger import NoLedger
    from diffcredit.study import Study

    loaded = Study.load(study)
    try:
        recipes = evaluations_by_recipe(loaded)
    except NoLedger:
        recipes = {}
    if loaded.recipe not in recipes:
        say(f"{loaded.recipe}: 0 of {loaded.wanted} evaluations; the model is not ready for them yet")
    if recipes:
        print_progress(loaded, recipes)
    if not recipes.get(loaded.recipe):
        return
    try:
        credits = loaded.credits()
    except UserError as error:
        say(str(error))
        return
    for name, credit in credits.items():
        apart = int(((credit.low > credit.average) | (credit.high < credit.average)).sum())
        say(
            f"{name}: {apart} of {len(credit.values)} contributors differ from the average beyond their interval; "
            f"predicted correlation with the credits of endless evaluations "
            f"{credit.diagnostics['predicted_correlation']:.2f}"
        )


def evaluations_by_recipe(study: "Study") -> "dict[str, list[Evaluation]]":
    """All evaluations of the study, also those of other retrainings; nothing where it has not begun."""
    with study.ledger(create=False) as ledger:
        if study.name not in ledger.studies():
            return {}
        return {recipe.name: ledger.evaluations(study.name, recipe.name) for recipe in ledger.recipes(study.name)}


def print_progress(study: "Study", recipes: "Mapping[str, Sequence[Evaluation]]") -> None:
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None)
    for name in ("recipe", "done", "failed attempts", "a minute", "time left"):
        grid.add_column(name, justify="left" if name == "recipe" else "right")
    for recipe, evaluations in recipes.items():
        done = [evaluation for evaluation in evaluations if evaluation.status == "done"]
        wanted = study.wanted if recipe == study.recipe else len(done)
        rate = per_second(done)
        left = max(0, wanted - len(done))
        grid.add_row(
            Text(recipe),
            f"{len(done)} of {wanted}",
            str(len(evaluations) - len(done)),
            f"{60 * rate:.1f}" if rate else "",
            duration(left / rate) if rate and left else "done" if not left else "",
        )
    console.print(grid)


def per_second(done: "Sequence[Evaluation]") -> float | None:
    """Evaluations a second over the last ones, from their own clocks; None for fewer than two."""
    recent = done[-RECENT:]
    if len(recent) < 2:
        return None
    finished = sorted(datetime.fromisoformat(evaluation.finished) for evaluation in recent)
    elapsed = (finished[-1] - finished[0]).total_seconds()
    return (len(recent) - 1) / elapsed if elapsed > 0 else None
