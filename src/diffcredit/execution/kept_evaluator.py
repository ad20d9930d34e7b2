"""Measuring again what was kept of an evaluation, without retraining."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import DiffcreditError
from diffcredit.execution.evaluator import value_of
from diffcredit.execution.keeping import Keeper
from diffcredit.execution.tasks import Task, utc_now, worker_name
from diffcredit.execution.versions import package_versions
from diffcredit.features.extractors import Extractors
from diffcredit.ledger import Evaluation
from diffcredit.properties.measuring import measure_all


@dataclass(frozen=True)
class KeptEvaluator:
    """Measures fitted properties on what ``keeper`` finds of evaluations; a kept model is sampled anew. ``load`` reads
    a model's folder."""

    keeper: Keeper
    properties: Sequence[Any]
    extractors: Extractors
    sampling: Sampling
    load: Callable[[Path], Any]

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        for task in tasks:
            started, clock = utc_now(), time.perf_counter()
            observation = self.keeper.find(task, self.extractors, self.load)
            if observation is None:
                raise DiffcreditError(f"nothing was kept of coalition {task.coalition}, replicate {task.replicate}")
            if not all(observation.suffices_for(prop) for prop in self.properties) and observation.model is not None:
                observation.images = generate(observation.model, self.sampling, often=True)
            measurements = measure_all(self.properties, observation)
            yield Evaluation(
                coalition=task.coalition,
                replicate=task.replicate,
                purpose=task.purpose,
                status="done",
                values=tuple(map(value_of, measurements)),
                error=None,
                numerics={},
                seconds={"measuring": time.perf_counter() - clock},
                worker=worker_name(),
                started=started,
                finished=utc_now(),
                versions=package_versions(),
            )
