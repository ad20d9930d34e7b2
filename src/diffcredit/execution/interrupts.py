"""Ctrl-C in two steps: the first lets current work finish, the second stops at once."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class StopRequest:
    """Whether the user asked for the run to stop."""

    requested: bool = False


@contextmanager
def stop_after_current(enabled: bool) -> Generator[StopRequest]:
    """Within, the first Ctrl-C sets ``requested`` and the next raises KeyboardInterrupt, if ``enabled``.

    Signals reach the main thread only, and a program's own handler stays: there, nothing changes.
    """
    stop = StopRequest()
    before = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if not enabled or not main or before is not signal.default_int_handler:
        yield stop
        return

    def note(number: int, frame: object) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True

    signal.signal(signal.SIGINT, note)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
