"""What a Ray cluster costs besides the work, and how far more workers help.

    python -m benchmarks cluster

*Overhead*: evaluations that do nothing, one after another through one worker; what each takes from the task to the
evaluation in the driver's hands, beside the same in this process. *Efficiency*: evaluations that only wait, so that
workers do not compete for this machine's cores, with 1, 2 and 4 workers: the work's own time over workers × the time
that passed. Both are of one run, on nodes of this machine: no network is between them.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diffcredit.execution import Evaluator, Executor, InProcess, RayWorkers, Task
from diffcredit.execution.tasks import utc_now, worker_name
from diffcredit.execution.versions import package_versions
from diffcredit.ledger import Evaluation, Value

HERE = Path(__file__).parent
WORKERS = (1, 2, 4)
NOTHINGS = 500  # evaluations that do nothing
SECONDS, WAITS = 0.5, 40  # of evaluations that wait: each, and how many for each worker


@dataclass(frozen=True)
class Waiting(Evaluator):
    """An evaluator, and its own factory, whose evaluations take so many ``seconds`` of no work."""

    seconds: float

    def __call__(self) -> "Waiting":
        return self

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        for task in tasks:
            started = utc_now()
            time.sleep(self.seconds)
            values = (Value("nothing", 0.0),)
            yield Evaluation(
                task.coalition, task.replicate, task.purpose, "done", values, None, {}, {}, worker_name(), started,
                utc_now(), package_versions(),
            )  # fmt: skip


def main() -> None:
    import ray

    ray.init(address="local", num_cpus=max(WORKERS), include_dashboard=False, log_to_driver=False)
    try:
        results = {
            "versions": {**package_versions(), "ray": ray.__version__},
            "milliseconds of an evaluation that does nothing": overheads(),
            "efficiency": {str(workers): efficiency(workers) for workers in WORKERS},
        }
    finally:
        ray.shutdown()
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (HERE / "results.md").write_text(page(results), encoding="utf-8")
    print(page(results))


def overheads() -> dict[str, float]:
    here = np.diff(arrivals(InProcess(), 0.0, NOTHINGS))
    with RayWorkers(1).session() as pool:
        warm_up(pool, 1)
        there = np.diff(arrivals(pool, 0.0, NOTHINGS))
    return {
        "this process": round(1000 * float(np.median(here)), 2),
        "ray, median": round(1000 * float(np.median(there)), 2),
        "ray, mean": round(1000 * float(np.mean(there)), 2),
        "ray, 99 %": round(1000 * float(np.quantile(there, 0.99)), 2),
    }


def efficiency(workers: int) -> dict[str, float]:
    with RayWorkers(workers).session() as pool:
        warm_up(pool, workers)
        start = time.perf_counter()
        passed = arrivals(pool, SECONDS, WAITS * workers)[-1] - start
    return {"seconds": round(passed, 2), "efficiency": round(SECONDS * WAITS / passed, 4)}


def warm_up(pool: Executor, workers: int) -> None:
    """Until all workers are at work."""
    seen: set[str] = set()

    def tasks() -> Iterator[Task]:
        number = 0
        while len(seen) < workers:
            yield Task("1", number, "pilot")
            number += 1

    for evaluation in pool.run(Waiting(0.05), tasks()):
        seen.add(evaluation.worker)


def arrivals(executor: Executor, seconds: float, count: int) -> list[float]:
    """When each evaluation came, in seconds."""
    tasks = (Task("1", number, "pilot") for number in range(count))
    return [time.perf_counter() for _ in executor.run(Waiting(seconds), tasks)]


def page(results: dict) -> str:
    """The results as a page."""
    cost = results["milliseconds of an evaluation that does nothing"]
    rows = [
        f"| {workers} | {WAITS * int(workers)} | {row['seconds']:.2f} | {row['efficiency']:.1%} |"
        for workers, row in results["efficiency"].items()
    ]
    return "\n".join(
        [
            "# What a Ray cluster costs besides the work",
            "",
            f"Ray {results['versions']['ray']}, all on one machine; `python -m benchmarks cluster` measures it anew.",
            "",
            f"An evaluation that does nothing takes {cost['ray, median']:g} ms through a Ray worker (median of "
            f"{NOTHINGS}; mean {cost['ray, mean']:g} ms, 99 % under {cost['ray, 99 %']:g} ms), "
            f"{cost['this process']:g} ms in the driver's own process. Writing it to the ledger comes on top.",
            "",
            f"Evaluations that wait {SECONDS:g} s each, {WAITS} for each worker; efficiency is their own time over "
            "workers × the time that passed:",
            "",
            "| workers | evaluations | seconds | efficiency |",
            "| ---: | ---: | ---: | ---: |",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    main()
