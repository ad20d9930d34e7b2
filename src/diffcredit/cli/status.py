"""``diffcredit status``: how far a study is."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import StudyArgument, console, say
from diffcredit.errors import UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from diffcredit.study.status import Status, StatusReader
    from diffcredit.study.study import Study


def status(
    study: StudyArgument,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between updates with --watch.")] = 2.0,
    price: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="Price of a worker's hour, for the cost. Default: the stopping rule's.", show_default=False
        ),
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
        print_json(facts)
        return
    show(loaded, facts)
    if any(recipe.name == loaded.recipe.name and recipe.done + recipe.failed for recipe in facts.recipes):
        print_credits_so_far(loaded)
    if facts.recipes:
        print_head(loaded)


def follow(study: "Study", reader: "StatusReader", every: float, *, json: bool) -> None:
    """Show a study's status until Ctrl-C: in place on a terminal, otherwise one below the other."""
    from rich.live import Live

    try:
        if json or not console.is_terminal:
            while True:
                facts = reader.read()
                if json:
                    print_json(facts)
                else:
                    say(f"{study.name}, {facts.time}")
                    show(study, facts)
                console.file.flush()  # files and pipes are buffered
                time.sleep(every)
        with Live("reading the ledger", console=console, auto_refresh=False) as live:
            while True:
                live.update(live_view(study, reader.read()), refresh=True)
                time.sleep(every)
    except KeyboardInterrupt:
        return


def live_view(study: "Study", facts: "Status") -> "RenderableType":
    """Return the status for a terminal, with a line above."""
    from rich.console import Group
    from rich.text import Text

    from diffcredit.cli.status_view import view

    lines = [Text(f"{study.name}, {facts.time}; Ctrl-C ends this view, not the study", "bold")]
    if not_ready := without_evaluations(study, facts):
        lines.append(Text(not_ready))
    return Group(*lines, *([view(facts)] if facts.recipes else []))


def show(study: "Study", facts: "Status") -> None:
    from diffcredit.cli.status_view import view

    if not_ready := without_evaluations(study, facts):
        say(not_ready)
    if facts.recipes:
        console.print(view(facts))


def without_evaluations(study: "Study", facts: "Status") -> str | None:
    """Return a line for a study whose recipe the ledger does not know yet; None if it does."""
    if any(recipe.name == study.recipe.name for recipe in facts.recipes):
        return None
    most = study.config.stop.rule.max_evaluations()
    of = "" if most is None else f" of {1 + study.config.design.full_replicates + most}"
    return f"{study.recipe.name}: 0{of} evaluations; the model is not ready for them yet"


def print_json(facts: "Status") -> None:
    from dataclasses import asdict
    from json import dumps

    typer.echo(dumps(asdict(facts)))


def print_head(study: "Study") -> None:
    """Print the ledger's head, with which verify can check later that the rows so far are unchanged."""
    with study.ledger(create=False) as ledger:
        head = ledger.head(study.name)
    if head.number:
        say(f"Head of the ledger's {head.number:,} rows: {head.hash}")


def print_credits_so_far(study: "Study") -> None:
    try:
        credits = study.credits()
    except UserError as error:
        say(str(error))
        return
    for name, credit in credits.items():
        apart = int((abs(credit.values - credit.average) > credit.contrast_half_width).sum())
        said = f"{name}: {apart} of {len(credit.values)} contributors differ from the average beyond their interval"
        predicted = credit.diagnostics.get("predicted_correlation")
        known = (
            f"by {credit.method}"
            if predicted is None
            else f"predicted correlation with the exact credits {predicted:.2f}"
        )
        say(f"{said}; {known}")
