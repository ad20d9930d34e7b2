"""What differs between two settings, in words a user can act on."""

from typing import Any

from diffcredit.util.artifacts import canonical_json

_LONGEST = 80
_ABSENT = object()


def differences(old: Any, new: Any, key: str = "") -> list[str]:
    """One line for each leaf that differs, in the order of the keys: ``retraining.steps 100 → 200``.

    Two values differ where their JSON texts do, as their fingerprints would: ``1`` is not ``1.0``. Lists of
    one length are compared item by item (``layers[2]``), others as a whole.
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
    return [] if before == after else [f"{key} {_shortened(before)} → {_shortened(after)}"]


def _text(value: Any) -> str:
    return "(absent)" if value is _ABSENT else canonical_json(value)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
