"""``diffcredit plan``: what a study will cost, before anything runs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffcredit.cli.console import Bars, StudyArgument, console, duration
from diffcredit.cli.where import Where, WorkersOption

if TYPE_CHECKING:
    from diffcredit.execution import Executor
    from diffcredit.schedule import Schedule, Total
    from diffcredit.study import Study


@dataclass(frozen=True)
class Stage:
    """A part of the work: what it is, how long all of it takes, and whether it is done already."""

    what: str
    seconds: float
    done: bool = False


def plan(study: StudyArgument, workers: WorkersOption = None) -> None:
    """Foresee a study's cost from a few timed steps on this machine; nothing is trained or kept."""
    from rich.table import Table
    from rich.text import Text

    from diffcredit.cli.pilot import print_pilot
    from diffcredit.cli.run import stopping_gently
    from diffcredit.cli.split import print_split
    from diffcredit.pilot import signals, warn_of_noise
    from diffcredit.study import Study

    with stopping_gently(), Bars() as bars:
        loaded = Study.load(study, bars)
        stages = foresee(loaded, workers)
    grid = Table(box=None)
    grid.add_column("stage")
    grid.add_column("time", justify="right")
    for stage in stages:
        grid.add_row(Text(stage.what), "done" if stage.done else duration(stage.seconds))
    grid.add_row("left in all", duration(sum(stage.seconds for stage in stages if not stage.done)), style="bold")
    console.print(grid)
    print_pilot(loaded)
    print_split(loaded)
    warn_of_noise(signals(loaded))


def foresee(study: "Study", workers: int | None) -> list[Stage]:
    """The stages of a study with their times here. Of measuring, the extraction of features is timed; the arithmetic
    on them is short."""
    from diffcredit.cli.run import make_executor
    from diffcredit.execution.calibration import measure_speed
    from diffcredit.execution.threads import limited_threads
    from diffcredit.preparation import base_is_there, check, start_and_rehearsal

    training, sampling = study.config.model.train, study.config.sampling
    check(study)
    side_by_side = workers_of(make_executor(study, Where(workers)))
    start, rehearsal = start_and_rehearsal(study)
    with limited_threads(study.config.threads):
        base = measure_speed(start, training, sampling, study.progress)
        settings = rehearsal.coalition or training
        speed = measure_speed(rehearsal.model, settings, sampling, study.progress, often=True)
        measuring = seconds_of_measuring(study)
    steps = rehearsal.coalition.steps if rehearsal.coalition else 0
    each = steps * speed.training_step + speed.sampling + measuring
    schedule = study.schedule()
    schedule.catch_up()
    total = foreseen_total(schedule, each, side_by_side)
    left = max(0, total.evaluations - schedule.finished)
    stages = [
        Stage(
            f"base model: {training.steps:,} steps, then {sampling.images:,} images",
            training.steps * base.training_step + base.sampling,
            done=base_is_there(study),
        )
    ]
    if rehearsal.preparation is not None:
        stages.append(
            Stage(
                f"preparing the retraining: {rehearsal.preparation.steps:,} steps",
                rehearsal.preparation.steps * speed.training_step,
                done=schedule.finished > 0,
            )
        )
    if study.surrogates.names:
        work = study.surrogates.work(study.contributions.n, total.evaluations)
        seconds = work.fine_tunings * steps * speed.training_step + work.samplings * speed.sampling
        stages.append(
            Stage(
                f"surrogates ({', '.join(study.surrogates.names)}): {work.fine_tunings:,} models of {steps:,} steps, "
                f"{work.samplings:,} × {sampling.images:,} images",
                seconds,
                done=schedule.finished > 0 and study.surrogates.ready(),
            )
        )
    features = f", {duration(measuring)} of them for features" if measuring >= 0.5 else ""
    what = (
        f"{left:,} evaluations of {'' if total.certain else 'about '}{total.evaluations:,}, {duration(each)} each "
        f"({steps:,} steps, {sampling.images:,} images{features}), {side_by_side} at a time"
    )
    return [*stages, Stage(what, left * each / side_by_side, done=left <= 0)]


def workers_of(executor: "Executor") -> int:
    """How many evaluations run at a time; one where only the cluster knows."""
    from diffcredit.execution import LocalWorkers
    from diffcredit.execution.ray_cluster import RayWorkers

    return executor.workers or 1 if isinstance(executor, LocalWorkers | RayWorkers) else 1


def seconds_of_evaluation(study: "Study") -> float:
    """Of one: by the ledger, or else from a few timed steps on this machine."""
    from diffcredit.execution.calibration import measure_speed
    from diffcredit.execution.threads import limited_threads
    from diffcredit.preparation import start_and_rehearsal

    done = [sum(each.seconds.values()) for each in study.evaluations(status="done") if "1" in each.coalition]
    if done:
        return sum(done) / len(done)
    _, rehearsal = start_and_rehearsal(study)
    training = rehearsal.coalition or study.config.model.train
    with limited_threads(study.config.threads):
        speed = measure_speed(rehearsal.model, training, study.config.sampling, study.progress, often=True)
        measuring = seconds_of_measuring(study)
    steps = rehearsal.coalition.steps if rehearsal.coalition else 0
    return steps * speed.training_step + speed.sampling + measuring


def seconds_of_measuring(study: "Study") -> float:
    """Of extracting all features that the study's properties need from one evaluation's images."""
    from diffcredit.execution.calibration import seconds_an_image
    from diffcredit.features.protocol import option_key
    from diffcredit.preparation import build_properties
    from diffcredit.properties.measuring import needs_features

    options = {option_key(prop.features): prop.features for prop in build_properties(study) if needs_features(prop)}
    resolution = study.config.contributions.resolution
    return study.config.sampling.images * sum(
        seconds_an_image(study.extractors, option, resolution) for option in options.values()
    )


def foreseen_total(schedule: "Schedule", each: float, side_by_side: int) -> "Total":
    """How many evaluations the stopping rule will want: from those so far, or else from the seconds of one here."""
    from diffcredit.credit.stopping import Look

    total = schedule.total(None if schedule.finished else Look(1, each, each / side_by_side, None, {}))
    assert total is not None  # a study's rule is bounded by evaluations, hours or money
    return total
