"""With the errors of Python, numpy, torch and safetensors themselves."""

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from diffcredit.diffusion.micro_batches import OutOfMemoryError
from diffcredit.errors import DiffcreditError
from diffcredit.execution.machine_errors import machine_error
from diffcredit.util.plugins import in_plugin
from diffcredit.util.store import StoreAway


def full_disk() -> None:
    with Path("/dev/full").open("w") as file:
        file.write("x")


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def in_a_plugin() -> None:
    with in_plugin("features: Mine"):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def while_handling() -> None:
    try:
        np.ones(2**60, np.uint8)
    finally:
        raise DiffcreditError("no model was made")


AcceleratorError = type("AcceleratorError", (RuntimeError,), {})


@pytest.mark.parametrize(
    ("fails", "kind"),
    [
        (full_disk, "out of disk"),
        (raising(SafetensorError("I/O error: No space left on device (os error 28)")), "out of disk"),
        (raising(OSError(errno.EDQUOT, "Disk quota exceeded")), "out of disk"),
        (lambda: np.ones(2**60, np.uint8), "out of memory"),
        (lambda: torch.empty(2**58), "out of memory"),
        (raising(OutOfMemoryError("out of memory with a single sample at once")), "out of memory"),
        (raising(AcceleratorError("CUDA error: out of memory")), "out of memory"),
        (raising(AcceleratorError("CUDA error: device-side assert triggered")), "GPU error"),
        (raising(StoreAway("s3://bucket: cannot be reached")), "artifacts out of reach"),
        (in_a_plugin, "out of memory"),
        (while_handling, "out of memory"),
    ],
)
def test_troubles_of_the_machine(fails, kind):
    with pytest.raises(Exception) as raised:  # noqa: PT011  (of any kind)
        fails()
    found = machine_error(raised.value)
    assert found.kind == kind
    assert "Traceback" in str(found)
    assert str(raised.value) in str(found)
    assert found.__context__ is None
    assert found.__traceback__ is None  # which would keep the tensors of the failed attempt


@pytest.mark.parametrize(
    "error",
    [
        ValueError("the loss is NaN"),
        FileNotFoundError(errno.ENOENT, "No such file"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        DiffcreditError("nothing was kept of coalition 01"),
    ],
)
def test_what_is_the_tasks_own(error):
    assert machine_error(error) is None
    error.__context__, error.__suppress_context__ = MemoryError(), True  # dealt with, and not to be shown
    assert machine_error(error) is None
