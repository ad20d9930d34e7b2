"""Notes of this machine: what a command has found out and the next one would have to find out again.

They lie in the user's cache folder (``DIFFCREDIT_NOTES`` in the environment names another), belong to no study and are
never exported. Whoever deletes them loses time only. A note is found by what it is about, such as the sizes and times
of files, so one that is out of date is never found.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from diffcredit.util.artifacts import canonical_json, fingerprint, write_text


def cache_folder() -> Path:
    """Return the user's folder of what later commands can reuse."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "diffcredit"


def noted(kind: str, about: Any) -> Any:
    """Return what was noted ``about`` a JSON value; None where nothing was, or it cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        return json.loads(_file(kind, about).read_text(encoding="utf-8"))
    return None


def note(kind: str, about: Any, what: Any) -> None:
    """Note ``what``, a JSON value, about another; where the folder cannot be written, do without."""
    with suppress(OSError):
        write_text(_file(kind, about), canonical_json(what))


def _file(kind: str, about: Any) -> Path:
    folder = os.environ.get("DIFFCREDIT_NOTES") or cache_folder() / "notes"
    return Path(folder) / f"{kind}-{fingerprint(about)}.json"
