"""What was found once, committed beside the tests."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def golden(name: str) -> Any:
    return json.loads(_file(name).read_text(encoding="utf-8"))


def write(name: str, found: Any) -> None:
    text = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
    # lists of plain values in one line
    text = re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda match: "[" + re.sub(r"\n\s*", " ", match[1]) + "]", text)
    _file(name).write_text(text + "\n", encoding="utf-8")


def _file(name: str) -> Path:
    return FOLDER / f"{name}.json"


def files_below(folder: Path, trained: Iterable[str] = ()) -> list[str]:
    """The names of all files but locks. In one that begins as ``trained`` says, a star stands for the hash: it is of
    trained weights, whose bits differ between CPUs."""
    names = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    kinds = "|".join(map(re.escape, trained))
    hidden = re.compile(rf"(?<=\b)({kinds})[0-9a-f]{{12}}") if kinds else None
    return sorted(hidden.sub(r"\1*", name) if hidden else name for name in names if not name.startswith(".locks/"))
