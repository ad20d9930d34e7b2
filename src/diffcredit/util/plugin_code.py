"""The code of plug-ins, looked at without running it: where it is, whether it changed, and which function did.

A plug-in's identity has the hash of its whole file, so that editing one function makes another plug-in of every
function in it. The ledger keeps that hash alone. Which function changed is known from a note of this machine.
"""

import ast
import hashlib
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from diffcredit.util.consent import code_hash
from diffcredit.util.notes import note, noted

SHOWN = 8  # digits of a hash in a message
OUTSIDE = "code outside its functions and classes"


def plugin_file(reference: str, beside: Path) -> Path | None:
    """Return the file of the module in ``module:Class``, found as an import would; None where it is not here."""
    top, *parts = reference.partition(":")[0].split(".")
    for folder in (*sys.path, str(beside)):
        if file := _module_in(Path(folder), [top, *parts]):
            return file
    with suppress(ImportError, ValueError):  # one of another kind, such as an installation that can be edited
        if spec := find_spec(top):
            folders = spec.submodule_search_locations or ()
            found = [_module_in(Path(folder), parts) for folder in folders] if parts else [Path(spec.origin or "")]
            return next((file for file in found if file and file.is_file()), None)
    return None


def _module_in(folder: Path, parts: Sequence[str]) -> Path | None:
    """Return the file of a module in one folder of a search path."""
    place = folder.joinpath(*parts)
    return next(filter(Path.is_file, (place.with_name(f"{place.name}.py"), place / "__init__.py")), None)


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
