"""``diffcredit plan``: the expected cost of a study."""

from typing import TYPE_CHECKING

from diffcredit.cli.console import Bars, StudyArgument, console, duration, say, stopping_gently
from diffcredit.cli.where import WorkersOption
from diffcredit.util.sanitize import single_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diffcredit.study.plan import Plan, Stage, TimedEvaluation
    from diffcredit.study.study import Study

LONG = 5.0  # seconds of compiling from which it gets a line


def plan(study: StudyArgument, workers: WorkersOption = None) -> None:
    """Estimate a study's cost from a few timed steps on this machine; nothing is trained or kept."""
    from diffcredit.cli.pilot import print_pilot
    from diffcredit.cli.split import print_split
    from diffcredit.study.pilot import signals, warn_of_noise
    from diffcredit.study.study import Study

    with stopping_gently(), Bars() as bars:
        loaded = Study.load(study, bars)
        planned = loaded.plan(workers)
    print_plan(loaded, planned)
    print_pilot(loaded.recipe)
    print_split(loaded)
    warn_of_noise(signals(loaded))


def print_plan(study: "Study", planned: "Plan") -> None:
    """Print the stages with their times."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None)
    grid.add_column("stage")
    grid.add_column("time", justify="right")
    for what, stage in stages(study, planned):
        grid.add_row(Text(what), "done" if stage.done else duration(stage.seconds))
    grid.add_row("total left", duration(planned.seconds_left), style="bold")
    if planned.compiling >= LONG:
        grid.add_row("compiling, just done; a run on this machine reuses it", duration(planned.compiling))
    console.print(grid)
    for name, why in planned.untimed.items():
        say(f"Not timed: {name}, which cannot be measured on random images: {single_line(why)}")


def stages(study: "Study", planned: "Plan") -> "Iterator[tuple[str, Stage]]":
    """Yield the description of each stage, and the stage."""
    training, sampling = study.config.model.train, study.config.sampling
    yield f"base model: {training.steps:,} steps, then {sampling.images:,} images", planned.base
    if planned.preparation is not None:
        yield f"preparing the retraining: {planned.preparation_steps:,} steps", planned.preparation
    if planned.surrogates is not None:
        work = planned.surrogate_work
        yield (
            f"surrogates ({', '.join(study.surrogates.names)}): {work.fine_tunings:,} models of {planned.steps:,} "
            f"steps, {work.samplings:,} × {sampling.images:,} images",
            planned.surrogates,
        )
    yield (
        f"{planned.left:,} evaluations of {'' if planned.total.certain else 'about '}{planned.total.evaluations:,}, "
        f"{duration(planned.evaluation.time.each(planned.side_by_side))} each ({planned.steps:,} steps, "
        f"{sampling.images:,} images{_measured(planned.evaluation)}), {planned.side_by_side} at a time",
        planned.evaluations,
    )


def _measured(timed: "TimedEvaluation") -> str:
    """Return the time of measuring, if it is worth mentioning."""
    if timed.measuring.seconds < 0.5:
        return ""
    features = timed.measuring.features
    of_it = f", {duration(features)} of it for features" if features >= 0.5 else ""
    return f", {duration(timed.measuring.seconds)} of measuring{of_it}"
