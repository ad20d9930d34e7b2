"""``diffcredit status``: how far a study is."""

from datetime import datetime
from typing import TYPE_CHECKING

from diffcredit.cli.console import StudyArgument, console, duration
from diffcredit.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffcredit.ledger import Evaluation

RECENT = 50  # evaluations that tell the present rate


def status(study: StudyArgument) -> None:
    """Show how far a study is: evaluations done and failed, rate, time left, how settled the credits are."""
    from rich.table import Table

    from diffcredit.study import Study

    loaded = Study.load(study)
    with loaded.ledger(create=False) as ledger:
        grid = Table(box=None)
        for name in ("recipe", "done", "failed attempts", "a minute", "time left"):
            grid.add_column(name, justify="left" if name == "recipe" else "right")
        for recipe in ledger.recipes(loaded.name):
            evaluations = ledger.evaluations(loaded.name, recipe.name)
            done = [evaluation for evaluation in evaluations if evaluation.status == "done"]
            wanted = loaded.wanted if recipe.name == loaded.recipe else len(done)
            rate = per_second(done)
            left = max(0, wanted - len(done))
            grid.add_row(
                recipe.name,
                f"{len(done)} of {wanted}",
                str(len(evaluations) - len(done)),
                f"{60 * rate:.1f}" if rate else "",
                duration(left / rate) if rate and left else "done" if not left else "",
            )
    console.print(grid)
    try:
        credits = loaded.credits()
    except UserError as error:
        console.print(f"Credits: {error}", markup=False, highlight=False)
        return
    for name, credit in credits.items():
        apart = int(((credit.low > credit.average) | (credit.high < credit.average)).sum())
        console.print(
            f"{name}: {apart} of {len(credit.values)} contributors differ from the average beyond their interval; "
            f"predicted correlation with the credits of endless evaluations "
            f"{credit.diagnostics['predicted_correlation']:.2f}",
            markup=False,
            highlight=False,
        )


def per_second(done: "Sequence[Evaluation]") -> float | None:
    """Evaluations a second over the last ones, from their own clocks; None for fewer than two."""
    recent = done[-RECENT:]
    if len(recent) < 2:
        return None
    finished = sorted(datetime.fromisoformat(evaluation.finished) for evaluation in recent)
    elapsed = (finished[-1] - finished[0]).total_seconds()
    return (len(recent) - 1) / elapsed if elapsed > 0 else None
