"""With the errors of Python, numpy, torch and safetensors themselves."""

import errno
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from diffcredit.diffusion.micro_batches import OutOfMemoryError
from diffcredit.errors import DiffcreditError
from diffcredit.execution.machine_errors import machine_error
from diffcredit.util.plugins import in_plugin


def full_disk() -> None:
    with Path("/dev/full").open("w") as file:
        file.write("x")


def full_disk_for_safetensors() -> None:
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def quota() -> None:
    raise OSError(errno.EDQUOT, "Disk quota exceeded")


def much_numpy() -> None:
    np.ones(2**60, np.uint8)


def much_torch() -> None:
    torch.empty(2**58)


def gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def not_one_sample() -> None:
    raise OutOfMemoryError("out of memory with a single sample at once")


def accelerator(message: str) -> None:
    raise type("AcceleratorError", (RuntimeError,), {})(message)


def gpu_driver() -> None:
    accelerator("CUDA error: out of memory")


def gpu_assertion() -> None:
    accelerator("CUDA error: device-side assert triggered")


def in_a_plugin() -> None:
    with in_plugin("features: Mine"):
        gpu()


def while_handling() -> None:
    try:
        much_numpy()
    finally:
        raise DiffcreditError("no model was made")


@pytest.mark.parametrize(
    ("fails", "kind"),
    [
        (full_disk, "out of disk"),
        (full_disk_for_safetensors, "out of disk"),
        (quota, "out of disk"),
        (much_numpy, "out of memory"),
        (much_torch, "out of memory"),
        (gpu, "out of memory"),
        (not_one_sample, "out of memory"),
        (gpu_driver, "out of memory"),
        (gpu_assertion, "GPU error"),
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
