"""Ctrl-C between two steps instead of within one."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def interruption(active: bool) -> Generator[threading.Event]:
    """Turns Ctrl-C into an event that a loop looks at between steps, when the state is whole.

    Only where ``active``, which is where a checkpoint can be written, and in the main thread (Python lets no
    other handle signals).
    """
    event = threading.Event()
    if not active or threading.current_thread() is not threading.main_thread():
        yield event
        return
    previous = signal.signal(signal.SIGINT, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, previous)
