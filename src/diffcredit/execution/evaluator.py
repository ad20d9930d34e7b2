"""An evaluation: get a coalition's model and images, measure the properties, keep what is worth keeping. Models come
from a :class:`Source`: retrained (:class:`RetrainedModels`), or kept by an earlier evaluation (:class:`KeptModels`)."""

import platform
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diffcredit.coalitions import decode
from diffcredit.diffusion.generating import generate, sampling_numerics
from diffcredit.diffusion.micro_batches import smallest_micro_batch
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.session import current_session
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import DiffcreditError
from diffcredit.execution.keeping import Keeper
from diffcredit.execution.machine_errors import machine_error
from diffcredit.execution.tasks import Evaluator, Task, done_evaluation, failed_evaluation, utc_now, worker_name
from diffcredit.features.extractors import Extractors
from diffcredit.ledger import Evaluation, Value
from diffcredit.properties.measuring import Observation, measure_all
from diffcredit.retraining.base import Retraining
from diffcredit.util.seeds import derive_seed


@dataclass(frozen=True)
class Observed:
    """A task whose model or images can be measured, and the ``seconds`` that getting them took, by stage."""

    task: Task
    observation: Observation
    seconds: dict[str, float]
    started: str


class Source(ABC):
    """Base class of the sources of models and images. One thread uses a source."""

    @property
    def at_once(self) -> int:
        """How many tasks are best observed together."""
        return 1

    @abstractmethod
    def observe(self, tasks: Sequence[Task], properties: Sequence[Any]) -> Iterator[Observed | Evaluation]:
        """Yield, for each task in order, what ``properties`` are measured on, or a failed evaluation. Machine errors
        are raised."""

    @abstractmethod
    def numerics(self, observation: Observation) -> dict[str, Any]:
        """Return the class within which outputs are bitwise equal; empty if nothing was computed that is recorded."""


@dataclass(frozen=True)
class RetrainedModels(Source):
    """Models made by a prepared retraining, and their images, all from the same initial noises (common random numbers).
    The randomness of a training follows from (study ``seed``, coalition, replicate)."""

    retraining: Retraining
    sampling: Sampling
    seed: int
    extractors: Extractors
    reference: Callable[[int], DiffusionModel] | None = None
    """Returns the model of a reference that is no coalition's, by its task's replicate. None: there is no such task."""

    @property
    def at_once(self) -> int:
        return self.retraining.at_once

    def observe(self, tasks: Sequence[Task], properties: Sequence[Any]) -> Iterator[Observed | Evaluation]:
        current_session().expected_sampling = self.sampling
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
                    yield Observed(task, Observation(self.extractors, images, model), seconds, started)

    def numerics(self, observation: Observation) -> dict[str, Any]:
        return numerics(observation.model, self.sampling)

    def _models(self, tasks: Sequence[Task]) -> Iterator[tuple[DiffusionModel, float]]:
        """Yield each task's model and its seconds of training."""
        for is_reference, some in groupby(tasks, lambda task: task.purpose == "reference"):
            if not is_reference:
                yield from self._retrained(list(some))
            elif self.reference is not None:
                yield from ((self.reference(task.replicate), 0.0) for task in some)

    def _retrained(self, tasks: Sequence[Task]) -> Iterator[tuple[DiffusionModel, float]]:
        """Yield the models of coalitions and their seconds of training; models made together get equal shares."""
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


@dataclass(frozen=True)
class KeptModels(Source):
    """Models and images that ``keeper`` has of earlier evaluations. A kept model is sampled again if a property needs
    images. ``load`` reads a model's folder."""

    keeper: Keeper
    sampling: Sampling
    extractors: Extractors
    load: Callable[[Path], Any]

    def observe(self, tasks: Sequence[Task], properties: Sequence[Any]) -> Iterator[Observed | Evaluation]:
        for task in tasks:
            started, clock = utc_now(), time.perf_counter()
            try:
                observation = self.keeper.find(task, self.extractors, self.load)
                if observation is None:
                    raise DiffcreditError(f"nothing was kept of coalition {task.coalition}, replicate {task.replicate}")
                if not all(observation.suffices_for(prop) for prop in properties) and observation.model is not None:
                    observation.images = generate(observation.model, self.sampling, often=True)
            except Exception as error:
                yield _failure(task, error, started)
            else:
                yield Observed(task, observation, {"measuring": time.perf_counter() - clock}, started)

    def numerics(self, observation: Observation) -> dict[str, Any]:
        return {}  # the record keeps those of the evaluation itself


@dataclass(frozen=True)
class ModelEvaluator(Evaluator):
    """Evaluate tasks: measure fitted ``properties`` on the model or images that ``source`` has of each. ``keeper``
    keeps images, features or models for later (None: nothing)."""

    source: Source
    properties: Sequence[Any]
    keeper: Keeper | None = None

    @property
    def at_once(self) -> int:
        return self.source.at_once

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        return self.evaluate_pipelined(tasks, tuple)

    def evaluate_pipelined(self, tasks: Sequence[Task], more: Callable[[], Sequence[Task]]) -> Iterator[Evaluation]:
        """Evaluate ``tasks``, and those that ``more`` returns. A GPU that trains several models together (a fleet)
        makes the next models and images while the last are measured."""
        fleets, unmeasured = self.at_once > 1, deque[Future[Evaluation]]()
        with ExitStack() as stack:
            thread = None
            while tasks:
                try:
                    for observed in self.source.observe(tasks, self.properties):
                        if isinstance(observed, Evaluation):  # a failed one
                            yield from _results(unmeasured)
                            yield observed
                        elif fleets and observed.observation.model.device.type == "cuda":
                            if thread is None:  # it ends with the stack; work not begun by then is cancelled
                                thread = ThreadPoolExecutor(1)
                                stack.callback(thread.shutdown, cancel_futures=True)
                            unmeasured.append(thread.submit(self._measure_on_own_stream, observed))
                            yield from _results(unmeasured, down_to=self.at_once)
                        else:
                            yield self.measure(observed)
                except (Exception, KeyboardInterrupt):  # the images made before it are measured all the same
                    yield from _results(unmeasured)
                    raise
                tasks = more() if unmeasured else ()
            yield from _results(unmeasured)

    def measure(self, observed: Observed) -> Evaluation:
        """Measure all properties, keep what is to be kept, and return the evaluation."""
        task, observation = observed.task, observed.observation
        try:
            clock = time.perf_counter()
            measurements = measure_all(self.properties, observation)
            measuring = observed.seconds.get("measuring", 0.0) + (time.perf_counter() - clock)
            if self.keeper is not None:
                self.keeper.keep(task, observation)
        except Exception as error:
            return _failure(task, error, observed.started)
        values = [Value(**vars(measurement)) for measurement in measurements]
        seconds = {**observed.seconds, "measuring": measuring}
        return done_evaluation(task, values, observed.started, self.source.numerics(observation), seconds)

    def _measure_on_own_stream(self, observed: Observed) -> Evaluation:
        with torch.cuda.stream(torch.cuda.Stream(observed.observation.model.device)):
            return self.measure(observed)


def _failure(task: Task, error: Exception, started: str) -> Evaluation:
    """Return the failed evaluation; raise a machine error, which the executor deals with."""
    if machine_error(error):
        raise error
    return failed_evaluation(task, "".join(traceback.format_exception(error)), worker_name(), started)


def _results(futures: deque[Future[Evaluation]], down_to: int = 0) -> Iterator[Evaluation]:
    """Yield results in order until ``down_to`` are left, and further ones that are there already."""
    while futures and (len(futures) > down_to or futures[0].done()):
        yield futures.popleft().result()


def numerics(model: DiffusionModel, sampling: Sampling) -> dict[str, Any]:
    """Return the class within which outputs are bitwise equal: the device, its threads, how the model was trained
    (number type, code path, models trained together) and sampled, and the micro-batch if memory forced one (None: as
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
