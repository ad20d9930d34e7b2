"""One driver of a simulated study in a process of its own: ``python -m benchmarks.scale.drive STUDY WORKERS``.

Prints a line of JSON at every further eighth of a power of ten of evaluations, and one at the end: how many were made
here, the seconds that passed, the seconds of CPU by what they were spent on, and the bytes of memory taken at the most.
"""

import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.scale.simulation import SimulatedStudy, SimulatedWorkers

CHECKPOINTS = {round(10 ** (power / 8)) for power in range(8, 49)}  # 10, 13, 18, 24, 32, …


def drive(study: SimulatedStudy, workers: int) -> Iterator[dict[str, Any]]:
    """Runs the study to its end; its state at every checkpoint."""
    executor = SimulatedWorkers(workers)
    began, began_cpu = time.perf_counter(), time.process_time()

    def state() -> dict[str, Any]:
        cpu = time.process_time() - began_cpu
        spent = vars(study.clocks) | {"simulation": executor.seconds}
        return {
            "evaluations": made,
            "seconds": time.perf_counter() - began,
            "cpu": spent | {"schedule": cpu - sum(spent.values())},
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }

    made = 0
    for made, _ in enumerate(study.evaluate(executor), 1):
        if made in CHECKPOINTS:
            yield state()
    yield state()


if __name__ == "__main__":
    for line in drive(SimulatedStudy(Path(sys.argv[1])), int(sys.argv[2])):
        print(json.dumps(line), flush=True)
