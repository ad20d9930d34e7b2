"""Which GPU a worker process of this machine sees."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice

VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_devices(count: int, variable: str | None) -> tuple[str, ...]:
    """Return the ``count`` CUDA devices that this process sees, as ``CUDA_VISIBLE_DEVICES`` names them.

    ``variable`` is its value here: numbers, UUIDs or names of MIG devices; None if it is not set.
    """
    if variable is None:
        return tuple(map(str, range(count)))
    names = tuple(name.strip() for name in variable.split(","))
    # a process sees only the first of several MIG devices
    return names if names[0].startswith("MIG-") else names[:count]


def spread(workers: int, devices: Sequence[str]) -> list[str | None]:
    """Return the device of each worker, in turn; None for all where there are no ``devices``."""
    return list(islice(cycle(devices), workers)) if devices else [None] * workers


@contextmanager
def device_visible(device: str | None) -> Generator[None]:
    """Have processes that are started within see this CUDA device alone; None: what this process sees."""
    before = os.environ.get(VARIABLE)
    if device is not None:
        os.environ[VARIABLE] = device
    try:
        yield
    finally:
        if device is not None and before is None:
            del os.environ[VARIABLE]
        elif before is not None:
            os.environ[VARIABLE] = before
