"""Differences between two settings, as lines that a user can act on."""

from typing import Any

from diffcredit.util.artifacts import canonical_json
from diffcredit.util.sanitize import truncated

_ABSENT = object()


def differences(old: Any, new: Any, key: str = "") -> list[str]:
    """Return one line for each leaf that differs, in the order of the keys: ``retraining.steps 100 → 200``.

    Two values differ where their JSON texts differ, just as their fingerprints would: ``1`` is not ``1.0``. Lists of
    the same length are compared item by item (``layers[2]``), others as a whole.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        lines = []
        for name in sorted(old.keys() | new.keys()):
            below = f"{key}.{name}" if key else name
            lines += differences(old.get(name, _ABSENT), new.get(name, _ABSENT), below)
        return lines
    if isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [line for index, (a, b) in pairs for line in differences(a, b, f"{key}[{index}]")]
    before, after = _text(old), _text(new)
    return [] if before == after else [f"{key} {truncated(before)} → {truncated(after)}"]


def _text(value: Any) -> str:
    return "(absent)" if value is _ABSENT else canonical_json(value)
