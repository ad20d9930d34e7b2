"""The expected cost of a study: from a few timed steps on this machine, and from its ledger once it has evaluations."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffcredit.credit.stopping import Look
from diffcredit.diffusion.fast.eligibility import fleet_size
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.timing.calibration import EvaluationTime, Timing, time_sampling, time_training
from diffcredit.execution.timing.measuring import DISTINCT, MeasuringTime, random_images, time_measuring
from diffcredit.properties import Context
from diffcredit.retraining.base import Rehearsal
from diffcredit.study.checks import check
from diffcredit.study.prepared import build_properties
from diffcredit.study.schedule import Schedule, Total
from diffcredit.study.workers import Workers, make_executor, side_by_side
from diffcredit.surrogates import Work

if TYPE_CHECKING:
    from diffcredit.study.recipe import Recipe
    from diffcredit.study.study import Study


@dataclass(frozen=True)
class Stage:
    """A part of the work: its time in ``seconds``, and whether it is already ``done``."""

    seconds: float
    done: bool = False


@dataclass(frozen=True)
class TimedEvaluation:
    """The time of an evaluation on this machine, that of measuring in detail, and the seconds of compiling."""

    time: EvaluationTime
    measuring: MeasuringTime
    compiling: float


@dataclass(frozen=True)
class Plan:
    """A study's stages with their times on this machine.

    ``preparation`` and ``surrogates`` are None where the study has no such stage. ``left`` of the ``total`` evaluations
    are still to be made, ``side_by_side`` at a time. ``compiling`` is the seconds that compiling took while steps were
    timed; a run on this machine finds it done.
    """

    base: Stage
    preparation: Stage | None
    preparation_steps: int
    surrogates: Stage | None
    surrogate_work: Work
    evaluations: Stage
    evaluation: TimedEvaluation
    steps: int
    total: Total
    left: int
    side_by_side: int
    compiling: float

    @property
    def seconds_left(self) -> float:
        stages = (self.base, self.preparation, self.surrogates, self.evaluations)
        return sum(stage.seconds for stage in stages if stage is not None and not stage.done)


def make_plan(study: "Study", workers: int | None = None) -> Plan:
    """Time a few steps of each stage of ``study`` here; nothing is trained to its end or kept."""
    check(study)
    at_a_time = side_by_side(make_executor(study, Workers(workers)))
    start = study.prepared.start()
    rehearsal = study.recipe.rehearse(start)
    schedule = study.schedule()
    schedule.catch_up()
    begun = schedule.finished > 0
    timed = time_evaluation(study.recipe, rehearsal)
    base, images, preparation = _time_preparation(study, start, rehearsal, begun=begun)
    total = expected_total(schedule, timed.time.each(at_a_time), at_a_time)
    work = study.surrogates.work(study.contributions.n, total.evaluations)
    surrogate_seconds = work.fine_tunings * timed.time.training + work.samplings * timed.time.sampling
    measured = begun and study.surrogates.ready()
    left = max(0, total.evaluations - schedule.finished)
    return Plan(
        base=Stage(base.seconds + images.seconds, study.prepared.has_base),
        preparation=None if rehearsal.preparation is None else Stage(preparation.seconds, begun),
        preparation_steps=rehearsal.preparation.steps if rehearsal.preparation else 0,
        surrogates=Stage(surrogate_seconds, measured) if study.surrogates.names else None,
        surrogate_work=work,
        evaluations=Stage(timed.time.of_all(left, at_a_time), left <= 0),
        evaluation=timed,
        steps=rehearsal.coalition.steps if rehearsal.coalition else 0,
        total=total,
        left=left,
        side_by_side=at_a_time,
        compiling=sum(each.compiling for each in (timed, base, images, preparation)),
    )


def _time_preparation(
    study: "Study", start: DiffusionModel, rehearsal: Rehearsal, *, begun: bool
) -> tuple[Timing, Timing, Timing]:
    """Time the training of the base model, the sampling of its images and the preparation of the retraining."""
    base, images, preparation = Timing(0.0), Timing(0.0), Timing(0.0)
    what = _timing(start)
    with limited_threads(study.config.threads):
        study.progress(what, 0, 2)
        if rehearsal.preparation is not None and not begun:
            preparation = time_training(rehearsal.model, rehearsal.preparation)
        study.progress(what, 1, 2)
        if not study.prepared.has_base:
            base, images = time_training(start, study.config.model.train), time_sampling(start, study.config.sampling)
        study.progress(what, 2, 2)
    return base, images, preparation


def evaluation_time(recipe: "Recipe") -> EvaluationTime:
    """Return the time of one evaluation: by the ledger, or else from a few timed steps on this machine."""
    done = [each for each in recipe.evaluations(status="done") if "1" in each.coalition]
    if done:
        return EvaluationTime.of(done)
    return time_evaluation(recipe, recipe.rehearse(recipe.study.prepared.start())).time


def time_evaluation(recipe: "Recipe", rehearsal: Rehearsal) -> TimedEvaluation:
    """Time the parts of an evaluation here, each as it is done for one coalition after another."""
    study, prepared = recipe.study, recipe.study.prepared
    model, coalition, sampling = rehearsal.model, rehearsal.coalition, study.config.sampling
    at_once = fleet_size(model, coalition) if coalition and rehearsal.together else None
    properties = build_properties(study.config, study.file)
    images = random_images(min(sampling.images, DISTINCT), study.config.contributions.resolution)
    context = Context(images, study.contributions, prepared.extractors, prepared.prompts(model))
    what = _timing(model)
    with limited_threads(study.config.threads):
        study.progress(what, 0, 3)
        # first, while the model is as it was: training a few steps changes it
        measuring = time_measuring(properties, prepared.states(properties), model, sampling.images, context)
        study.progress(what, 1, 3)
        sampled = time_sampling(model, sampling, often=True)
        study.progress(what, 2, 3)
        trained = time_training(model, coalition, at_once) if coalition else Timing(0.0)
        study.progress(what, 3, 3)
    time = EvaluationTime(trained.seconds, sampled.seconds, measuring.seconds, at_once or 1)
    return TimedEvaluation(time, measuring, sampled.compiling + trained.compiling)


def expected_total(schedule: Schedule, each: float, at_a_time: int) -> Total:
    """Estimate how many evaluations there will be, from those so far or, without any, from the seconds of one."""
    total = schedule.total(None if schedule.finished else Look(1, each, each / at_a_time, None, {}))
    assert total is not None  # a study's rule is bounded by evaluations, hours or money
    return total


def _timing(model: DiffusionModel) -> str:
    """Return the name of the timing of ``model`` in the progress."""
    return f"{'compiling, and ' if model.device.type == 'cuda' else ''}timing a few steps"
