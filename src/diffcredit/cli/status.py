"""``diffcredit status``: how far a study is."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from diffcredit.cli.console import StudyArgument, console, duration, say
from diffcredit.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from diffcredit.credit.stopping import Standing
    from diffcredit.ledger import Evaluation
    from diffcredit.schedule import Schedule
    from diffcredit.study import Study

RECENT = 50  # evaluations that tell the present rate


def status(study: StudyArgument) -> None:
    """Show how far a study is: evaluations done and failed, when it stops, how settled the credits are."""
    from diffcredit.ledger import NoLedger
    from diffcredit.study import Study

    loaded = Study.load(study)
    try:
        recipes = evaluations_by_recipe(loaded)
    except NoLedger:
        recipes = {}
    if loaded.recipe not in recipes:
        most = loaded.config.stop.rule.most()
        of = "" if most is None else f" of {1 + loaded.config.design.full_replicates + most}"
        say(f"{loaded.recipe}: 0{of} evaluations; the model is not ready for them yet")
    schedule = None
    if loaded.recipe in recipes:
        schedule = loaded.schedule()
        schedule.catch_up()
    if recipes:
        print_progress(recipes, loaded.recipe, schedule)
    if schedule is not None and recipes[loaded.recipe]:
        print_rule(schedule, done_of(recipes[loaded.recipe]))
        print_credits_so_far(loaded)
    if recipes:
        print_head(loaded)


def print_head(study: "Study") -> None:
    """What to note down, so that verify can tell later whether the rows so far are still there unchanged."""
    with study.ledger(create=False) as ledger:
        head = ledger.head(study.name)
    if head.number:
        say(f"Head of the ledger's {head.number:,} rows: {head.hash}")


def evaluations_by_recipe(study: "Study") -> "dict[str, list[Evaluation]]":
    """All evaluations of the study, also those of other retrainings, but no pilots; nothing where it has not begun."""
    with study.ledger(create=False) as ledger:
        if study.name not in ledger.studies():
            return {}
        recipes = [recipe.name for recipe in ledger.recipes(study.name)]
        return {
            name: [each for each in ledger.evaluations(study.name, name) if each.purpose != "pilot"] for name in recipes
        }


def print_progress(recipes: "Mapping[str, Sequence[Evaluation]]", studied: str, schedule: "Schedule | None") -> None:
    """A line for each recipe; the ``studied`` one has a schedule, which tells how many evaluations it wants."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None)
    for name in ("recipe", "done", "failed attempts", "a minute", "time left"):
        grid.add_column(name, justify="left" if name == "recipe" else "right")
    for recipe, evaluations in recipes.items():
        done = done_of(evaluations)
        total = schedule.total() if schedule and recipe == studied else None
        of = "" if total is None else f" of {'' if total.certain else 'about '}{total.evaluations}"
        rate = per_second(done)
        left = 0 if total is None else total.evaluations - len(done)
        grid.add_row(
            Text(recipe),
            f"{len(done)}{of}",
            str(len(evaluations) - len(done)),
            f"{60 * rate:.1f}" if rate else "",
            "done" if left <= 0 else duration(left / rate) if rate else "",
        )
    console.print(grid)


def print_rule(schedule: "Schedule", done: "Sequence[Evaluation]") -> None:
    """The stopping rule and its parts: what each wants, what is there, and about when it will be reached."""
    from rich.table import Table
    from rich.text import Text

    rate, made = per_second(done), len(done) - len(schedule.endpoints)
    grid = Table(box=None)
    for name in ("stops at", "now", "evaluations", "time left"):
        grid.add_column(name, justify="left" if name == "stops at" else "right", no_wrap=name != "stops at")
    whole = schedule.standing()
    for depth, standing in rows(whole):
        foreseen = standing.evaluations
        wait = duration(max(0, foreseen - made) / rate) if rate and foreseen is not None and not whole.reached else ""
        grid.add_row(
            Text("  " * depth + standing.wanted),  # a property's name is data, never markup
            Text(standing.now),
            "cannot tell yet" if foreseen is None else f"≈ {foreseen:,}",
            "reached" if standing.reached else wait,
        )
    console.print(grid)


def rows(standing: "Standing", depth: int = 0) -> "Iterator[tuple[int, Standing]]":
    """A rule and its parts, each with how deep it is nested."""
    yield depth, standing
    for part in standing.parts:
        yield from rows(part, depth + 1)


def print_credits_so_far(study: "Study") -> None:
    try:
        credits = study.credits()
    except UserError as error:
        say(str(error))
        return
    for name, credit in credits.items():
        apart = int((abs(credit.values - credit.average) > credit.contrast_half_width).sum())
        say(
            f"{name}: {apart} of {len(credit.values)} contributors differ from the average beyond their interval; "
            f"predicted correlation with the credits of endless evaluations "
            f"{credit.diagnostics['predicted_correlation']:.2f}"
        )


def done_of(evaluations: "Sequence[Evaluation]") -> "list[Evaluation]":
    return [evaluation for evaluation in evaluations if evaluation.status == "done"]


def per_second(done: "Sequence[Evaluation]") -> float | None:
    """Evaluations a second over the last ones, from their own clocks, pauses left out; None for fewer than two."""
    from diffcredit.schedule import active_seconds

    recent = done[-RECENT:]
    elapsed = active_seconds(recent)
    return len(recent) / elapsed if len(recent) > 1 and elapsed > 0 else None
