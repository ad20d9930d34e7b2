"""Troubles of the machine, which may be over in another process or a moment later: they say nothing of the task."""

import errno
import traceback
from collections.abc import Iterator
from typing import Literal

from diffcredit.util.store import StoreAway

Trouble = Literal["out of memory", "out of disk", "GPU error", "artifacts out of reach"]

_DISK = (errno.ENOSPC, errno.EDQUOT)
# what has no class of its own: the allocator of torch's CPU tensors, cuBLAS, and safetensors, which writes files itself
_TEXTS: dict[str, Trouble] = {
    "DefaultCPUAllocator: can't allocate memory": "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED": "out of memory",
    **{f"(os error {number})": "out of disk" for number in _DISK},
}


class MachineTrouble(Exception):
    """An evaluator, or what builds it, met a trouble of its machine; the message is the traceback."""

    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(message)
        self.trouble: Trouble = trouble


def told(error: BaseException) -> MachineTrouble | None:
    """What the error, or one behind it, says of the machine; None: it is of the task's own. Nothing in the answer
    holds the error's frames, and what lies in them, in memory."""
    for each in _chain(error):
        trouble = _trouble(each)
        if trouble is not None:
            return MachineTrouble(trouble, "".join(traceback.format_exception(error)))
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that its traceback would show as its reasons."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _trouble(error: BaseException) -> Trouble | None:
    if isinstance(error, OSError):
        return "out of disk" if error.errno in _DISK else None
    names = {kind.__name__ for kind in type(error).__mro__}  # torch is not imported for its errors
    if names & {"MemoryError", "OutOfMemoryError"}:
        return "out of memory"
    if isinstance(error, StoreAway):
        return "artifacts out of reach"
    text = str(error)
    if "AcceleratorError" in names:  # after which the GPU refuses this process whatever it asks for
        return "out of memory" if "out of memory" in text else "GPU error"
    return next((trouble for part, trouble in _TEXTS.items() if part in text), None)
