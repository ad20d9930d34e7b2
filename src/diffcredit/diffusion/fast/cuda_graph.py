"""CUDA graphs: work recorded once and replayed with one call in place of hundreds of kernel launches."""

import gc
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

import torch

from diffcredit.util.events import event
from diffcredit.util.garbage import no_garbage_collection

WARM_UP = 2  # calls before the recording, which must not contain compiling, tuning and allocation at first use


class Replayed:
    """``work()`` on ``stream``, which reads and writes the same tensors at every call and never reads them on the host.
    It is recorded while ``lock`` is held."""

    def __init__(self, work: Callable[[], None], stream: torch.cuda.Stream, lock: threading.Lock) -> None:
        self._work, self._stream, self._lock = work, stream, lock
        self._graph: torch.cuda.CUDAGraph | None = None

    def record(self) -> bool:
        """Record the work unless it was recorded before; return True if it was done a few times for that."""
        if self._graph is not None:
            return False
        clock = time.perf_counter()
        graph = torch.cuda.CUDAGraph()
        with self._lock, _repeatable():
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UP):
                    self._work()
            self._stream.synchronize()
            # records without computing; another thread may measure earlier results meanwhile
            with _nothing_collected(), torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
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
    """Collect garbage, then switch the collector off within the block: CUDA does not permit that an earlier graph is
    destroyed during a recording, which then fails."""
    gc.collect()
    with no_garbage_collection():
        yield


def _repeatable() -> AbstractContextManager[None]:
    """Make cuDNN use deterministic kernels, chosen by rule and not by timing; on an H200 this costs nothing."""
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=torch.backends.cudnn.allow_tf32
    )
