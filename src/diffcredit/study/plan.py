"""The expected cost of a study: from a few timed steps on this machine, and from its ledger once it has evaluations."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from diffcredit.credit.stopping import Look
from diffcredit.diffusion.fast.eligibility import fleet_size
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.timing.calibration import EvaluationTime, Timing, time_sampling, time_training
from diffcredit.execution.timing.measuring import DISTINCT, MeasuringTime, random_images, time_measuring
from diffcredit.properties import Context
from diffcredit.properties.prompted import PromptedProperty
from diffcredit.retraining.base import Rehearsal
from diffcredit.study.checks import check
from diffcredit.study.pilot import pilot_evaluations, pilot_tasks
from diffcredit.study.prepared import build_properties
from diffcredit.study.schedule import Schedule, Total
from diffcredit.study.workers import Workers, make_executor, side_by_side
from diffcredit.surrogates import Work

if TYPE_CHECKING:
    from diffcredit.study.recipe import Recipe
    from diffcredit.study.study import Study


IMPORTS = 5.0  # seconds until a process has imported torch and the rest
RANGE = 0.8, 1.4  # parts of an estimate from a few steps between which the true time lies on a quiet machine
BUSY = 0.3  # part of the cores that others use, from which a machine is busy
FOREIGN = 2**30  # bytes of GPU memory that others hold, likewise
LEAST_FREE = 0.25  # part of a busy machine that a run is assumed to get at least


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
    timed; a run on this machine finds it done. ``pilot`` is None once the design's evaluations have begun without one.
    ``busy`` says who else uses this machine; empty if nobody does, who gets the ``free`` part of it. ``measured``
    is the number of images that each property with prompts measures in an evaluation.
    """

    startup: Stage
    base: Stage
    preparation: Stage | None
    preparation_steps: int
    surrogates: Stage | None
    surrogate_work: Work
    pilot: Stage | None
    pilot_evaluations: int
    evaluations: Stage
    evaluation: TimedEvaluation
    steps: int
    total: Total
    left: int
    side_by_side: int
    compiling: float
    busy: str = ""
    free: float = 1.0
    measured: Mapping[str, int] = field(default_factory=dict)

    @property
    def seconds_left(self) -> float:
        stages = (self.startup, self.base, self.preparation, self.surrogates, self.pilot, self.evaluations)
        return sum(stage.seconds for stage in stages if stage is not None and not stage.done)

    @property
    def range_left(self) -> tuple[float, float]:
        """The seconds that are left, at least and at most. Steps timed on a busy machine are slower than on a free
        one."""
        low, high = RANGE
        return low * self.free * self.seconds_left, high * self.seconds_left


def make_plan(study: "Study", workers: int | None = None) -> Plan:
    """Time a few steps of each stage of ``study`` here; nothing is trained to its end or kept."""
    study.progress("timing a few steps", 0, 3)
    check(study)
    at_a_time = side_by_side(make_executor(study, Workers(workers)))
    busy, free = who_else(study.prepared.device)
    began = time.perf_counter()
    start = study.prepared.start()
    loading = IMPORTS + time.perf_counter() - began
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
    piloted, tasks = len(pilot_evaluations(study.recipe)), pilot_tasks(study.config, study.contributions.n)
    pilot = Stage(timed.time.of_all(len(tasks), at_a_time), piloted > 0)
    return Plan(
        startup=Stage(loading if at_a_time == 1 else 2 * loading, left <= 0),  # this process, then its workers
        base=Stage(base.seconds + images.seconds, study.prepared.has_base and (begun or study.prepared.has_generated)),
        preparation=None if rehearsal.preparation is None else Stage(preparation.seconds, begun),
        preparation_steps=rehearsal.preparation.steps if rehearsal.preparation else 0,
        surrogates=Stage(surrogate_seconds, measured) if study.surrogates.names else None,
        surrogate_work=work,
        pilot=None if begun and not piloted else pilot,
        pilot_evaluations=piloted or len(tasks),
        evaluations=Stage(timed.time.of_all(left, at_a_time), left <= 0),
        evaluation=timed,
        steps=rehearsal.coalition.steps if rehearsal.coalition else 0,
        total=total,
        left=left,
        side_by_side=at_a_time,
        compiling=sum(each.compiling for each in (timed, base, images, preparation)),
        busy=busy,
        free=free,
        measured=_measured_for_prompts(study, start),
    )


def _measured_for_prompts(study: "Study", start: DiffusionModel) -> dict[str, int]:
    """Return how many images each property with prompts measures, by name."""
    properties = build_properties(study.config, study.file)
    prompted = [prop for prop in properties if isinstance(prop, PromptedProperty)]
    for prop in prompted:
        prop.choose(study.prepared.prompts(start))
    return {prop.name: prop.measured for prop in prompted}


def who_else(device: torch.device) -> tuple[str, float]:
    """Return who else uses this machine, in words (empty: nobody), and the part of it that is free."""
    if device.type == "cuda":
        free, whole = torch.cuda.mem_get_info(device)
        foreign = whole - free - torch.cuda.memory_reserved(device)
        if foreign > FOREIGN:
            return f"{foreign / 2**30:.0f} GiB of the GPU's memory are in use by others", 0.5
        return "", 1.0
    if not hasattr(os, "getloadavg"):  # Windows
        return "", 1.0
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    cores = cores or os.cpu_count() or 1
    if load < BUSY * cores:
        return "", 1.0
    return f"a load of {load:.1f} on {cores} cores in the last minute", max(LEAST_FREE, 1 - load / cores)


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
        if not begun and not study.prepared.has_generated:
            images = time_sampling(start, study.config.sampling)
        if not study.prepared.has_base:
            base = time_training(start, study.config.model.train)
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
