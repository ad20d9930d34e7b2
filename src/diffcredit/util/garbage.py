"""Python's garbage collector, switched off for a while."""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_blocks = 0  # that are under way, in all threads
_was_enabled = True


@contextmanager
def no_garbage_collection() -> Generator[None]:
    """Switch the collector off within the block. It stays off until the last of several threads has left its own."""
    global _blocks, _was_enabled
    with _lock:
        if not _blocks:
            _was_enabled = gc.isenabled()
            gc.disable()
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks and _was_enabled:
                gc.enable()
