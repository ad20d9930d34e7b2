"""JSON files that strangers hand in, read strictly: what two programs could read in two ways is refused."""

import json
from pathlib import Path
from typing import Any, NoReturn

from diffcredit.errors import UserError
from diffcredit.util.sanitize import shortened

LARGEST = 100_000_000  # bytes


def read_document(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raise a UserError for anything else, such as a key that is there twice."""
    try:
        if file.stat().st_size > LARGEST:
            raise ValueError(f"it has more than {LARGEST // 10**6} MB")
        text = file.read_text(encoding="utf-8")
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror or error})") from error
    except RecursionError:
        raise UserError(f"{file}: is no JSON that can be read (it is nested too deeply)") from None
    except ValueError as error:  # also what is no UTF-8
        raise UserError(f"{file}: is no JSON that can be read ({error})") from None
    if not isinstance(found, dict):
        raise UserError(f"{file}: has {shortened(found)}; a JSON object is expected")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(shortened(name) for name in names if names.count(name) > 1)} is there twice")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
