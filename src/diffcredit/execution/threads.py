"""The number of threads of a computation. Several threads add sums in another order, so their number belongs to the
numerics class of a value, and every executor sets it in the same way."""

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@contextmanager
def limited_threads(threads: int) -> Generator[None]:
    """Compute with ``threads`` threads within, and with the previous number afterwards. Libraries that are already
    loaded are set directly; those loaded within, as torch may be, read the environment."""
    torch = sys.modules.get("torch")
    torch_before = torch.get_num_threads() if torch is not None else None
    with environment(dict.fromkeys(_VARIABLES, str(threads))):
        try:
            with threadpool_limits(threads):
                if torch is not None:
                    torch.set_num_threads(threads)
                yield
        finally:
            if torch is not None:
                torch.set_num_threads(torch_before)


@contextmanager
def environment(variables: Mapping[str, str]) -> Generator[None]:
    """Set environment variables within; afterwards they are as before."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
