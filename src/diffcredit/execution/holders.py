"""Names by which drivers hold claims: no two drivers share one, and who shares a driver's place sees when it is gone.

A name is ``machine@place:process:random``. Containers may share a machine's name, and each has a process 1. The *place*
distinguishes them: it is this start of the kernel and the namespace that process numbers belong to. Only there does a
missing process number mean that the driver has ended. Elsewhere its claims expire first, and so they do for drivers of
older releases, whose names have no place; these in turn take nothing over at once from a name with a place.
"""

import hashlib
import os
import platform
import re
import secrets
import sys
from functools import cache
from pathlib import Path

_NAME = re.compile(r"(.*):([1-9][0-9]{0,6}):[^:]*", re.DOTALL | re.ASCII)


def new_holder() -> str:
    """Return a name for a driver in this process."""
    return f"{_here()}:{os.getpid()}:{secrets.token_hex(4)}"


def is_gone(holder: str) -> bool:
    """Return whether the driver of this name has surely ended. A name may come from a damaged or hostile ledger."""
    found = _NAME.fullmatch(holder)
    if os.name != "posix" or found is None or found[1] != _here():
        return False
    try:
        os.kill(int(found[2]), 0)  # only checks
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody else's process
        pass
    return False


@cache
def _here() -> str:
    """Return the machine and the place of this process. Where Linux does not say which place it is, nobody shares it;
    other systems have one for each machine."""
    if not sys.platform.startswith("linux"):
        return platform.node()
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        place = hashlib.sha256((start + str(Path("/proc/self/ns/pid").readlink())).encode()).hexdigest()[:8]
    except (OSError, ValueError):
        place = secrets.token_hex(4)
    return f"{platform.node()}@{place}"
