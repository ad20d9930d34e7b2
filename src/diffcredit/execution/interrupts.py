"""Ctrl-C that drains: the first one asks for an end, the second one ends at once."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Interrupts:
    """Whether an end was ``asked`` for."""

    asked: bool = False


@contextmanager
def gentle_interrupts() -> Generator[Interrupts]:
    """Within, the first Ctrl-C is noted and the next one raises KeyboardInterrupt. A thread other than the main one
    gets no signals, and a program with a way of its own to take them keeps it."""
    interrupts = Interrupts()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield interrupts
        return

    def note(number: int, frame: object) -> None:
        if interrupts.asked:
            raise KeyboardInterrupt
        interrupts.asked = True

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
