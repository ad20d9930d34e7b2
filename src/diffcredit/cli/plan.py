"""``diffcredit plan``: what a study will cost, before anything runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffcredit.cli.console import Bars, StudyArgument, console, duration, say
from diffcredit.cli.where import Where, WorkersOption
from diffcredit.study.timing import TimedEvaluation, time_evaluation, timing
from diffcredit.util.sanitize import single_line

if TYPE_CHECKING:
    from diffcredit.execution import Executor
    from diffcredit.study.schedule import Schedule, Total
    from diffcredit.study.study import Study

LONG = 5.0  # seconds of compiling that are worth a line


@dataclass(frozen=True)
class Stage:
    """A part of the work: what it is, how long all of it takes, and whether it is done already."""

    what: str
    seconds: float
    done: bool = False


@dataclass(frozen=True)
class Foreseen:
    """A study's stages, the seconds that compiling for them took while they were timed, and the properties that could
    not be timed, with the reasons."""

    stages: list[Stage]
    compiling: float
    left_out: Mapping[str, str]


def plan(study: StudyArgument, workers: WorkersOption = None) -> None:
    """Foresee a study's cost from a few timed steps on this machine; nothing is trained or kept."""
    from rich.table import Table
    from rich.text import Text

    from diffcredit.cli.pilot import print_pilot
    from diffcredit.cli.run import stopping_gently
    from diffcredit.cli.split import print_split
    from diffcredit.study.pilot import signals, warn_of_noise
    from diffcredit.study.study import Study

    with stopping_gently(), Bars() as bars:
        loaded = Study.load(study, bars)
        foreseen = foresee(loaded, workers)
    grid = Table(box=None)
    grid.add_column("stage")
    grid.add_column("time", justify="right")
    for stage in foreseen.stages:
        grid.add_row(Text(stage.what), "done" if stage.done else duration(stage.seconds))
    left = sum(stage.seconds for stage in foreseen.stages if not stage.done)
    grid.add_row("left in all", duration(left), style="bold")
    if foreseen.compiling >= LONG:
        grid.add_row("compiling, done just now: a run on this machine finds it", duration(foreseen.compiling))
    console.print(grid)
    for name, why in foreseen.left_out.items():
        say(f"Not timed: {name}, which cannot be measured on random images: {single_line(why)}")
    print_pilot(loaded)
    print_split(loaded)
    warn_of_noise(signals(loaded))


def foresee(study: "Study", workers: int | None) -> Foreseen:
    """The stages of a study with their times here."""
    from diffcredit.cli.run import make_executor
    from diffcredit.execution.threads import limited_threads
    from diffcredit.execution.timing.calibration import Timing, time_sampling, time_training
    from diffcredit.study.prepared import base_is_there, check, start_and_rehearsal

    training, sampling = study.config.model.train, study.config.sampling
    check(study)
    side_by_side = workers_of(make_executor(study, Where(workers)))
    start, rehearsal = start_and_rehearsal(study)
    schedule = study.schedule()
    schedule.catch_up()
    trained, prepared = base_is_there(study), schedule.finished > 0
    base, images, preparation = Timing(0.0), Timing(0.0), Timing(0.0)
    timed, what = time_evaluation(study, rehearsal), timing(start)
    with limited_threads(study.config.threads):
        study.progress(what, 0, 2)
        if rehearsal.preparation is not None and not prepared:
            preparation = time_training(rehearsal.model, rehearsal.preparation)
        study.progress(what, 1, 2)
        if not trained:
            base, images = time_training(start, training), time_sampling(start, sampling)
        study.progress(what, 2, 2)
    total = foreseen_total(schedule, timed.time.each(side_by_side), side_by_side)
    left = max(0, total.evaluations - schedule.finished)
    stages = [
        Stage(
            f"base model: {training.steps:,} steps, then {sampling.images:,} images",
            base.seconds + images.seconds,
            done=trained,
        )
    ]
    if rehearsal.preparation is not None:
        what = f"preparing the retraining: {rehearsal.preparation.steps:,} steps"
        stages.append(Stage(what, preparation.seconds, done=prepared))
    steps = rehearsal.coalition.steps if rehearsal.coalition else 0
    if study.surrogates.names:
        work = study.surrogates.work(study.contributions.n, total.evaluations)
        stages.append(
            Stage(
                f"surrogates ({', '.join(study.surrogates.names)}): {work.fine_tunings:,} models of {steps:,} steps, "
                f"{work.samplings:,} × {sampling.images:,} images",
                work.fine_tunings * timed.time.training + work.samplings * timed.time.sampling,
                done=prepared and study.surrogates.ready(),
            )
        )
    what = (
        f"{left:,} evaluations of {'' if total.certain else 'about '}{total.evaluations:,}, "
        f"{duration(timed.time.each(side_by_side))} each ({steps:,} steps, {sampling.images:,} images"
        f"{_measured(timed)}), {side_by_side} at a time"
    )
    stages.append(Stage(what, timed.time.of_all(left, side_by_side), done=left <= 0))
    compiling = sum(each.compiling for each in (timed, base, images, preparation))
    return Foreseen(stages, compiling, timed.measuring.left_out)


def _measured(timed: TimedEvaluation) -> str:
    """What measuring takes, where that is worth a word."""
    if timed.measuring.seconds < 0.5:
        return ""
    features = timed.measuring.features
    of_it = f", {duration(features)} of it for features" if features >= 0.5 else ""
    return f", {duration(timed.measuring.seconds)} of measuring{of_it}"


def workers_of(executor: "Executor") -> int:
    """How many evaluations run at a time; one where only the cluster knows."""
    from diffcredit.execution import LocalWorkers
    from diffcredit.execution.ray_cluster import RayWorkers

    return executor.workers or 1 if isinstance(executor, LocalWorkers | RayWorkers) else 1


def foreseen_total(schedule: "Schedule", each: float, side_by_side: int) -> "Total":
    """How many evaluations the stopping rule will want: from those so far, or else from the seconds of one here."""
    from diffcredit.credit.stopping import Look

    total = schedule.total(None if schedule.finished else Look(1, each, each / side_by_side, None, {}))
    assert total is not None  # a study's rule is bounded by evaluations, hours or money
    return total
