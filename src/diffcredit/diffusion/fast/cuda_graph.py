"""A GPU's work recorded once and replayed: the host says "again" in place of launching hundreds of kernels."""

import gc
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

import torch

from diffcredit.util.events import event

WARM_UP = 2  # calls before the recording: what is compiled, tuned and allocated at first use must not be in it


class Replayed:
    """``work()`` on ``stream``, which reads and writes the same tensors at every call and never looks at them. One is
    recorded at a time, while ``lock`` is held."""

    def __init__(self, work: Callable[[], None], stream: torch.cuda.Stream, lock: threading.Lock) -> None:
        self._work, self._stream, self._lock = work, stream, lock
        self._graph: torch.cuda.CUDAGraph | None = None

    def record(self) -> bool:
        """Records the work if that is still to be done; True: it was done a few times for that."""
        if self._graph is not None:
            return False
        clock = time.perf_counter()
        graph = torch.cuda.CUDAGraph()
        with self._lock, _repeatable():
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UP):
                    self._work()
            self._stream.synchronize()
            # which records and does not compute; meanwhile another thread may measure what was made before
            with (
                _nothing_collected(),
                torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"),
            ):
                self._work()
        self._graph = graph
        event("work recorded", seconds=round(time.perf_counter() - clock, 3))
        return True

    def __call__(self) -> None:
        assert self._graph is not None  # recorded before
        with torch.cuda.stream(self._stream):
            self._graph.replay()


@contextmanager
def _nothing_collected() -> Generator[None]:
    """Within, Python does not look for cycles that nobody holds: an earlier recording in one of them would be thrown
    away while the next is made, which CUDA does not permit, and which spoils that one."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _repeatable() -> AbstractContextManager[None]:
    """Within, cuDNN takes kernels that give the same numbers every time, and chooses them by rule and not by a race; on
    an H200 that costs nothing."""
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=torch.backends.cudnn.allow_tf32
    )
