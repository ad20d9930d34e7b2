"""Credits as JSON files: everything of them to the last bit, with the format's version, the time and the parameters.

Numbers that JSON does not know are written as "inf", "-inf" and "nan", coalitions as "0101…".
"""

import json
import math
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from diffcredit.coalitions import decode, encode
from diffcredit.credit.table import GameTable, SizeDistribution
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray

if TYPE_CHECKING:
    from diffcredit.credit.credits import Credits

Kind = TypeVar("Kind", bound="Credits")

FORMAT = "diffcredit credits"
VERSION = 1


def to_json(credits: "Credits") -> str:
    """Return the text of a file; its ``parameters`` repeat what a reader looks for first."""
    try:
        software = version("diffcredit")
    except PackageNotFoundError:
        software = "unknown"
    parameters = {"method": credits.method, "confidence": credits.confidence, "contributors": len(credits.names)}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "diffcredit": software,
        "saved": datetime.now(UTC).isoformat(timespec="seconds"),
        "parameters": parameters | {"size_distribution": credits.table.sizes_drawn.name.strip("'")},
        "credits": _plain(credits),
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def read_json(kind: type[Kind], path: Path) -> Kind:
    """Return the credits in a file that `to_json` wrote. Raise UserError for any other file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = document["format"], document["version"]
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (ValueError, TypeError, KeyError):
        found = None, None
    if found[0] != FORMAT:
        raise UserError(f"{path}: no credits; expected a file that Credits.save wrote")
    if found[1] != VERSION:
        raise UserError(
            f"{path}: version {found[1]} of the format; this diffcredit reads version {VERSION}. Load it with the "
            f"diffcredit that saved it ({document.get('diffcredit')}), or estimate the credits again"
        )
    try:
        return _credits(kind, document["credits"])
    except (KeyError, TypeError, ValueError, UserError) as error:
        raise UserError(f"{path}: damaged ({error!r}); estimate the credits again") from error


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == np.bool_:
        return [encode(row) for row in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def _credits(kind: type[Kind], found: dict[str, Any]) -> Kind:
    table, n = found["table"], len(found["values"])
    restored_table = {name: _floats(table[name]) for name in ("values", "scatter", "empty", "full")} | {
        "coalitions": np.array([decode(row) for row in table["coalitions"]], dtype=np.bool_).reshape(-1, n),
        "replicates": np.array(table["replicates"], dtype=np.intp),
        "known": tuple(table["known"]),
        "sizes_drawn": SizeDistribution(table["sizes_drawn"]["name"], _floats(table["sizes_drawn"]["probabilities"])),
        "names": tuple(table["names"]),
    }
    restored: dict[str, Any] = {name: _floats(found[name]) for name in ("values", "standard_error", "bias")} | {
        "influence": _floats(found["influence"]).reshape(n, -1),
        "diagnostics": {name: float(number) for name, number in found["diagnostics"].items()},
        "degrees": float(found["degrees"]),
        "parts": tuple((float(weight), _credits(kind, part)) for weight, part in found["parts"]),
        "table": GameTable(**table | restored_table),
    }
    return kind(**found | restored)


def _floats(found: list[Any]) -> FloatArray:
    return np.array(found, dtype=np.float64)
