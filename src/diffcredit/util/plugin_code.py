"""The code of plug-ins, looked at without running it: where it is, whether it changed, and which function did.

A plug-in's identity has the hash of its whole file, so that editing one function makes another plug-in of every
function in it. The ledger keeps that hash alone. Which function changed is known from a note of this machine.
"""

import ast
import hashlib
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from diffcredit.util.notes import note, noted

SHOWN = 8  # digits of a hash in a message
OUTSIDE = "code outside its functions and classes"


def plugin_file(reference: str, beside: Path) -> Path | None:
    """Return the file of the module in ``module:Class``, found as an import would; None where it is not here."""
    module = Path(*reference.partition(":")[0].split("."))
    for folder in (*sys.path, str(beside)):
        for file in (Path(folder) / f"{module}.py", Path(folder) / module / "__init__.py"):
            if file.is_file():
                return file
    return None


def code_hash(file: Path) -> str:
    """Return the hash by which a plug-in's identity knows its file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def has_code(file: Path, recorded: str) -> bool:
    """Return whether the ``recorded`` code is that of ``file`` or of a file beside it, from which it may import."""
    return any(code_hash(each) == recorded for each in (file, *file.parent.glob("*.py")))


def note_code(file: Path, codes: Collection[str]) -> None:
    """Note what each function and class is in those of ``file`` and the files beside it whose hash is in ``codes``."""
    for each in (file, *file.parent.glob("*.py")):
        if (code := code_hash(each)) in codes and not known_code(code):
            with suppress(OSError, ValueError, SyntaxError):
                note("code", code, {"file": each.name, "parts": _parts(each)})


def known_code(recorded: str) -> bool:
    """Return whether a command has run the code of this hash on this machine before."""
    return noted("code", recorded) is not None


def code_change(file: Path, recorded: str, used: Sequence[str]) -> str:
    """Return in words how ``file`` differs from the code of the hash ``recorded``. ``used``: the functions and classes
    that a study uses of it."""
    known: Any = noted("code", recorded)
    if known is not None and file.with_name(known["file"]).is_file():
        file = file.with_name(known["file"])
    where = f"code of {file.name} {recorded[:SHOWN]} → {code_hash(file)[:SHOWN]}"
    if known is None:
        return f"{where} (of which this study uses {', '.join(used)}; which of its functions changed is not noted here)"
    before, now = known["parts"], {}
    with suppress(ValueError, SyntaxError):
        now = _parts(file)
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    words = ", ".join(_in_words(name, before, now) for name in changed) or "only comments or spaces changed"
    same = ", ".join(name for name in used if name in now and name not in changed)
    if not same:
        return f"{where} ({words})"
    return f"{where} ({words}; {same} did not change: restore {file.name} and put what is new into another file)"


def _in_words(name: str, before: dict[str, str], now: dict[str, str]) -> str:
    what = "changed" if name in before and name in now else "is new" if name in now else "is gone"
    return f"{name or OUTSIDE} {what}"


def _parts(file: Path) -> dict[str, str]:
    """Return a hash for each function and class of a file, and for all else together (under an empty name)."""
    parts: dict[str, str] = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        name = getattr(node, "name", "")
        text = parts.get(name, "") + ast.dump(node)
        parts[name] = hashlib.sha256(text.encode()).hexdigest()
    return parts
