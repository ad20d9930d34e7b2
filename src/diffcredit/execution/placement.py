"""Which GPU a worker process of this machine gets."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice

VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_devices(count: int, variable: str | None) -> tuple[str, ...]:
    """The ``count`` CUDA devices that this process sees, as ``CUDA_VISIBLE_DEVICES`` names them. ``variable`` is its
    value here, which may have numbers, UUIDs or names of MIG devices; None: it is not set."""
    if variable is None:
        return tuple(map(str, range(count)))
    names = tuple(name.strip() for name in variable.split(","))
    # of MIG devices a process sees the first one only, whatever it was given
    return names if names[0].startswith("MIG-") else names[:count]


def spread(workers: int, devices: Sequence[str]) -> list[str | None]:
    """The device of each worker, in turn, so that no device has two workers more than another; None for all where
    there are no ``devices``."""
    return list(islice(cycle(devices), workers)) if devices else [None] * workers


@contextmanager
def seeing(device: str | None) -> Generator[None]:
    """A process started within sees this CUDA device alone from its first moment on; None: what this one sees."""
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
