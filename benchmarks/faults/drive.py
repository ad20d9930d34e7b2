"""One driver in a process of its own, as ``diffcredit run``: ``python -m benchmarks.faults.drive STUDY [ADDRESS]``.

With the ADDRESS of a Ray cluster its workers are there. Its claims are good for seconds, not minutes, so that a
campaign sees them expire. Worker processes import this file: it imports the rest when it is run.
"""

import logging
import sys
from functools import partial
from pathlib import Path

LEASE = 3.0  # seconds
TIMEOUT = 8.0  # seconds of one evaluation
WORKERS = 2
SECONDS = 0.25  # that an evaluation waits
LOG = "log.jsonl"


def main() -> None:
    import diffcredit.study.evaluating
    from benchmarks.faults.study import FaultyStudy
    from diffcredit.cli.console import report_failures
    from diffcredit.errors import DiffcreditError
    from diffcredit.execution import LocalWorkers, RayWorkers
    from diffcredit.execution.driver import Driver
    from diffcredit.execution.tasks import worker_name
    from diffcredit.util.events import LOGGER, LogFile, event

    file, address = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    diffcredit.study.evaluating.Driver = partial(Driver, lease=LEASE)
    study = FaultyStudy(file, SECONDS)
    local, cluster = LocalWorkers(WORKERS, timeout=TIMEOUT), RayWorkers(WORKERS, address, gpus=0.0, timeout=TIMEOUT)
    LOGGER.setLevel(logging.INFO)
    LOGGER.addHandler(LogFile(file.parent / LOG, worker_name(), study.name))
    try:
        report_failures(study.evaluate(cluster if address else local))
    except (DiffcreditError, OSError) as error:
        event("failed", level=logging.ERROR, error=str(error))
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
