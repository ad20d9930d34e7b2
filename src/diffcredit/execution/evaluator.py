"""An evaluation: a coalition's model is made, its images are generated, its properties measured."""

import platform
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from diffcredit.coalitions import decode
from diffcredit.diffusion.generating import generate, sampling_numerics
from diffcredit.diffusion.micro_batches import smallest_micro_batch
from diffcredit.diffusion.protocol import DiffusionModel
from diffcredit.diffusion.settings import Sampling
from diffcredit.execution.keeping import Keeper
from diffcredit.execution.tasks import Task, failed_evaluation, utc_now, worker_name
from diffcredit.execution.troubles import told
from diffcredit.execution.versions import package_versions
from diffcredit.features.extractors import Extractors
from diffcredit.ledger import Evaluation, Value
from diffcredit.properties.measuring import Measurement, Observation, measure_all
from diffcredit.retraining.protocol import Retraining
from diffcredit.seeds import derive_seed


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
        remaining = deque(tasks)
        while remaining:
            models = self._models(list(remaining))
            while remaining:
                started = utc_now()
                try:
                    evaluation = self._evaluate(remaining[0], models, started)
                except Exception as error:
                    if told(error):  # for who runs this to deal with
                        raise
                    # a generator that raised is spent: the failure is recorded, the others get a new one
                    yield failed_evaluation(remaining.popleft(), traceback.format_exc(), worker_name(), started)
                    break
                remaining.popleft()
                yield evaluation

    def _models(self, tasks: Sequence[Task]) -> Iterator[DiffusionModel]:
        coalitions = np.stack([decode(task.coalition) for task in tasks])
        seeds = [derive_seed(self.seed, task.coalition, task.replicate) for task in tasks]
        yield from self.retraining.models_for(coalitions, seeds)

    def _evaluate(self, task: Task, models: Iterator[DiffusionModel], started: str) -> Evaluation:
        clock = [time.perf_counter()]
        model = next(models)
        clock.append(time.perf_counter())
        images = generate(model, self.sampling)
        clock.append(time.perf_counter())
        observation = Observation(self.extractors, images, model)
        measurements = measure_all(self.properties, observation)
        clock.append(time.perf_counter())
        self.keeper.keep(task, observation)
        training, sampling, measuring = np.diff(clock).tolist()
        return Evaluation(
            coalition=task.coalition,
            replicate=task.replicate,
            purpose=task.purpose,
            status="done",
            values=tuple(value_of(measurement) for measurement in measurements),
            error=None,
            numerics=numerics(model, self.sampling),
            seconds={"training": training, "sampling": sampling, "measuring": measuring},
            worker=worker_name(),
            started=started,
            finished=utc_now(),
            versions=package_versions(),
        )


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
        "sampling": sampling_numerics(model, sampling),
        "micro_batch": smallest_micro_batch(),
    }
