"""How long an evaluation of a study takes: by its ledger, or from a few timed steps on this machine."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diffcredit.diffusion.protocol import DiffusionModel
    from diffcredit.execution.timing.evaluation import EvaluationTime
    from diffcredit.execution.timing.measuring import MeasuringTime
    from diffcredit.retraining.protocol import Rehearsal
    from diffcredit.study.study import Study


@dataclass(frozen=True)
class TimedEvaluation:
    """The seconds of an evaluation's parts as timed here, those of measuring in detail, and those of compiling."""

    time: "EvaluationTime"
    measuring: "MeasuringTime"
    compiling: float


def evaluation_time(study: "Study") -> "EvaluationTime":
    """Of one: by the ledger, or else from a few timed steps on this machine."""
    from diffcredit.execution.timing.evaluation import EvaluationTime
    from diffcredit.study.prepared import start_and_rehearsal

    done = [each for each in study.evaluations(status="done") if "1" in each.coalition]
    return EvaluationTime.of(done) if done else time_evaluation(study, start_and_rehearsal(study)[1]).time


def time_evaluation(study: "Study", rehearsal: "Rehearsal") -> TimedEvaluation:
    """The parts of an evaluation with their times here, each as it is done for one coalition after another."""
    from diffcredit.diffusion.fast.sizes import fleet_size
    from diffcredit.execution.threads import limited_threads
    from diffcredit.execution.timing.calibration import Timing, time_sampling, time_training
    from diffcredit.execution.timing.evaluation import EvaluationTime
    from diffcredit.execution.timing.measuring import time_measuring
    from diffcredit.execution.timing.stand_ins import DISTINCT, random_images
    from diffcredit.properties import Context
    from diffcredit.study.prepared import build_properties, followed_prompts, kept_states

    model, coalition, sampling = rehearsal.model, rehearsal.coalition, study.config.sampling
    at_once = fleet_size(model, coalition) if coalition and rehearsal.together else None
    properties = build_properties(study)
    images = random_images(min(sampling.images, DISTINCT), study.config.contributions.resolution)
    context = Context(images, study.contributions, study.extractors, followed_prompts(study, model))
    what = timing(model)
    with limited_threads(study.config.threads):
        study.progress(what, 0, 3)
        # first, while the model is as it was: training a few steps changes it
        measuring = time_measuring(properties, kept_states(study, properties), model, sampling.images, context)
        study.progress(what, 1, 3)
        sampled = time_sampling(model, sampling, often=True)
        study.progress(what, 2, 3)
        trained = time_training(model, coalition, at_once) if coalition else Timing(0.0)
        study.progress(what, 3, 3)
    time = EvaluationTime(trained.seconds, sampled.seconds, measuring.seconds, at_once or 1)
    return TimedEvaluation(time, measuring, sampled.compiling + trained.compiling)


def timing(model: "DiffusionModel") -> str:
    """What timing ``model`` is called while it lasts."""
    return f"{'compiling, and ' if model.device.type == 'cuda' else ''}timing a few steps"
