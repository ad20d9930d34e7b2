"""An evaluation: a coalition's model is made, its images are generated, its properties measured."""

import platform
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from diffcredit.coalitions import decode
from diffcredit.diffusion.generating import generate, sampling_numerics
from diffcredit.diffusion.micro_batches import smallest_micro_batch
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.session import current_session
from diffcredit.diffusion.settings import Sampling
from diffcredit.execution.keeping import Keeper
from diffcredit.execution.tasks import Task, failed_evaluation, utc_now, worker_name
from diffcredit.execution.troubles import told
from diffcredit.execution.versions import package_versions
from diffcredit.features.extractors import Extractors
from diffcredit.ledger import Evaluation, Value
from diffcredit.properties.measuring import Measurement, Observation, measure_all
from diffcredit.retraining.base import Retraining
from diffcredit.util.seeds import derive_seed


@dataclass(frozen=True)
class ModelEvaluator:
    """Evaluates coalitions with a prepared retraining and fitted properties.

    All coalitions start from the same initial noises (common random numbers); what is random in a coalition's
    training follows from (study seed, coalition, replicate).
    """

    retraining: Retraining
    sampling: Sampling
    properties: Sequence[Any]
    seed: int
    extractors: Extractors
    keeper: Keeper

    @property
    def at_once(self) -> int:
        """How many coalitions' models are best made together."""
        return getattr(self.retraining, "at_once", 1)

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        return self.evaluate_on(tasks, tuple)

    def evaluate_on(self, tasks: Sequence[Task], more: Callable[[], Sequence[Task]]) -> Iterator[Evaluation]:
        """Of these tasks and, where models are made in fleets, of those that ``more`` gives, until it gives none: a GPU
        makes the next models and their images while the last ones' are measured."""
        fleets, unmeasured = self.at_once > 1, deque[Future[Evaluation]]()
        with ExitStack() as stack:
            aside = None
            while tasks:
                try:
                    for sampled in self.sampled(tasks):
                        if isinstance(sampled, Evaluation):  # a failed one
                            yield from _taken(unmeasured)
                            yield sampled
                        elif fleets and sampled.observation.model.device.type == "cuda":
                            aside = aside or _one_thread(stack)
                            unmeasured.append(aside.submit(self._measured_beside, sampled))
                            yield from _taken(unmeasured, down_to=self.at_once)
                        else:
                            yield self.measured(sampled)
                except (Exception, KeyboardInterrupt):  # what has its images is no part of that
                    yield from _taken(unmeasured)
                    raise
                tasks = more() if unmeasured else ()
            yield from _taken(unmeasured)

    def sampled(self, tasks: Sequence[Task]) -> Iterator["Sampled | Evaluation"]:
        """Of each task, its model's images, or how that failed."""
        current_session().expect_sampling(self.sampling)
        remaining = deque(tasks)
        while remaining:
            models = self._models(list(remaining))
            while remaining:
                task, started = remaining.popleft(), utc_now()
                try:
                    model, training = next(models)
                except Exception as error:
                    # a generator that raised is spent: the others get a new one
                    yield _failure(task, error, started)
                    break
                try:
                    clock = time.perf_counter()
                    images = generate(model, self.sampling, often=True)
                    seconds = {"training": training, "sampling": time.perf_counter() - clock}
                except Exception as error:
                    yield _failure(task, error, started)
                else:
                    yield Sampled(task, Observation(self.extractors, images, model), seconds, started)

    def _models(self, tasks: Sequence[Task]) -> Iterator[tuple[DiffusionModel, float]]:
        """Each task's model, and the seconds that its training took: of those made together, equal shares."""
        coalitions = np.stack([decode(task.coalition) for task in tasks])
        seeds = [derive_seed(self.seed, task.coalition, task.replicate) for task in tasks]
        models = iter(self.retraining.models_for(coalitions, seeds))
        share = 0.0
        for place in range(len(tasks)):
            clock = time.perf_counter()
            model = next(models)
            if place % self.at_once == 0:
                share = (time.perf_counter() - clock) / min(self.at_once, len(tasks) - place)
            yield model, share

    def _measured_beside(self, sampled: "Sampled") -> Evaluation:
        with torch.cuda.stream(torch.cuda.Stream(sampled.observation.model.device)):
            return self.measured(sampled)

    def measured(self, sampled: "Sampled") -> Evaluation:
        """The evaluation that it makes."""
        task, observation = sampled.task, sampled.observation
        try:
            clock = time.perf_counter()
            measurements = measure_all(self.properties, observation)
            measuring = time.perf_counter() - clock
            self.keeper.keep(task, observation)
        except Exception as error:
            return _failure(task, error, sampled.started)
        return Evaluation(
            coalition=task.coalition,
            replicate=task.replicate,
            purpose=task.purpose,
            status="done",
            values=tuple(value_of(measurement) for measurement in measurements),
            error=None,
            numerics=numerics(observation.model, self.sampling),
            seconds={**sampled.seconds, "measuring": measuring},
            worker=worker_name(),
            started=sampled.started,
            finished=utc_now(),
            versions=package_versions(),
        )


@dataclass(frozen=True)
class Sampled:
    """A task whose model and images are there, and the seconds that they took."""

    task: Task
    observation: Observation
    seconds: dict[str, float]
    started: str


def _failure(task: Task, error: Exception, started: str) -> Evaluation:
    """The failed evaluation; what the machine is to blame for is raised, for who runs this to deal with."""
    if told(error):
        raise error
    return failed_evaluation(task, "".join(traceback.format_exception(error)), worker_name(), started)


def _one_thread(stack: ExitStack) -> ThreadPoolExecutor:
    """Ends with the stack, whatever is still to be done then."""
    pool = ThreadPoolExecutor(1)
    stack.callback(pool.shutdown, cancel_futures=True)
    return pool


def _taken(futures: deque[Future[Evaluation]], down_to: int = 0) -> Iterator[Evaluation]:
    """The results of the first, until so many are left, and of those after them that are there already."""
    while futures and (len(futures) > down_to or futures[0].done()):
        yield futures.popleft().result()


def value_of(measurement: Measurement) -> Value:
    """A measurement as the ledger has it."""
    return Value(
        measurement.property, measurement.value, measurement.standard_error, measurement.images, measurement.error
    )


def numerics(model: DiffusionModel, sampling: Sampling) -> dict[str, Any]:
    """The class within which outputs are bitwise equal: the device, its threads, how the model was trained (type of
    numbers, path of the code, models trained at once) and sampled, and the micro-batch where memory ran out (None: as
    the study says)."""
    device = model.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    threads = torch.get_num_threads() if device.type == "cpu" else None
    return {
        "device": f"{device.type} {name}",
        "threads": threads,
        "training": dict(getattr(model, "made", {})),
        "sampling": sampling_numerics(model, sampling, often=True),
        "micro_batch": smallest_micro_batch(),
    }
