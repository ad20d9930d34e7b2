"""Errors that the machine is to blame for: memory, disk or GPU, not the task. Repeating the task may help."""

import errno
import traceback
from typing import Literal

from diffcredit.util.store import StoreAway

MachineErrorKind = Literal["out of memory", "out of disk", "GPU error", "artifacts out of reach"]

_DISK = (errno.ENOSPC, errno.EDQUOT)
# errors without a class of their own: torch's CPU allocator, cuBLAS, and safetensors, which writes files itself
_TEXTS: dict[str, MachineErrorKind] = {
    "DefaultCPUAllocator: can't allocate memory": "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED": "out of memory",
    **{f"(os error {number})": "out of disk" for number in _DISK},
}


class MachineError(Exception):
    """An error of the machine, met while an evaluator worked or was built; the message is the traceback."""

    def __init__(self, kind: MachineErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: MachineErrorKind = kind


def machine_error(error: BaseException) -> MachineError | None:
    """Return the machine error behind ``error`` or its causes; None if the task itself is to blame. It holds no frames,
    so that the tensors of the failed attempt can be freed."""
    cause: BaseException | None = error
    while cause is not None:  # also those that its traceback would show
        kind = _kind(cause)
        if kind is not None:
            return MachineError(kind, "".join(traceback.format_exception(error)))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None


def _kind(error: BaseException) -> MachineErrorKind | None:
    if isinstance(error, OSError):
        return "out of disk" if error.errno in _DISK else None
    names = {kind.__name__ for kind in type(error).__mro__}  # torch is not imported for its errors
    if names & {"MemoryError", "OutOfMemoryError"}:
        return "out of memory"
    if isinstance(error, StoreAway):
        return "artifacts out of reach"
    text = str(error)
    if "AcceleratorError" in names:  # the GPU refuses everything that this process asks for afterwards
        return "out of memory" if "out of memory" in text else "GPU error"
    return next((kind for part, kind in _TEXTS.items() if part in text), None)
