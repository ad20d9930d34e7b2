"""What a case may not do while it is watched: leave its folder, write, run or reach anything, or take for ever."""

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from diffcredit.errors import UserError

SECONDS = 20.0  # of a case, whatever else the machine does
LONGEST = 2000  # characters of a message, names of folders included

_ESCAPES = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "socket.connect",
    "socket.getaddrinfo",
)
_CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "shutil.rmtree")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Escape(AssertionError):
    """A case did what none may do."""


class Endless(AssertionError):
    """A case did not end."""


class _Watch:
    """An audit hook of the interpreter, which stays for good and is switched on for each case."""

    def __init__(self) -> None:
        self.forbidden: Path | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.forbidden is None:
            return
        if event in _ESCAPES or event in _CHANGES:
            self.seen.append(f"{event} {arguments}")
        elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if path.startswith(str(self.forbidden)) or path.endswith("hostile_plugin.py"):
                self.seen.append(f"opened {path}")
            elif arguments[2] & _WRITING and path != os.devnull:
                self.seen.append(f"wrote {path}")


_watch: list[_Watch] = []


@contextmanager
def watched(outside: Path) -> Generator[None]:
    """Raises an Escape where what happens within reads ``outside``, writes any file, or starts or reaches anything;
    and an Endless one where it takes over ``SECONDS``."""
    if not _watch:
        _watch.append(_Watch())
    watch = _watch[0]
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    handler = signal.signal(signal.SIGALRM, _endless)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    watch.seen, watch.forbidden = [], outside.resolve()
    try:
        yield
    finally:
        watch.forbidden = None
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        sys.dont_write_bytecode = before
        if watch.seen:
            raise Escape("; ".join(watch.seen))


def _endless(*_: object) -> None:
    raise Endless(f"over {SECONDS} s")


def outcome(read: Any, folder: Path, outside: Path) -> Literal["accepted", "refused"]:
    """What became of a case: anything else than these two is raised."""
    try:
        with watched(outside):
            read(folder)
    except UserError as error:
        message = str(error)
        assert 0 < len(message) < LONGEST, f"a message of {len(message)} characters"
        return "refused"
    return "accepted"
