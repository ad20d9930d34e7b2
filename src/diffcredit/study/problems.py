"""Messages about settings that a section refuses: the key, the value and what is accepted."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, cast, get_args

from pydantic import BaseModel

from diffcredit.util.sanitize import LONGEST_VALUE, shortened

ALTERNATIVES = ("[place]", "[names]", "[model]", "[numbers]")
"""The names of a value's alternatives in pydantic's places of errors; none of them is a key."""


def problems_of(problems: Iterable[Any], root: type) -> str:
    """Return a message with each key's problem, at most three, in a mapping that should have been a ``root``."""
    reasons: dict[str, list[str]] = {}
    values: dict[str, str] = {}
    for problem in problems:
        if problem["type"] == "too_short" and problem["input"]:
            continue  # only because its items are wrong, which other problems say
        key, section = _place(problem["loc"], root)
        values[key], reason = _problem(problem, section, root)
        reasons.setdefault(key, []).append(reason)
    return "; ".join(f"{key}: {values[key]}{' or '.join(reasons[key])}" for key in list(reasons)[:3])


def keys_of(section: type) -> str:
    """Return the keys of a section for a message."""
    if issubclass(section, BaseModel):
        return ", ".join(field.alias or name for name, field in section.model_fields.items())
    return ", ".join(field.name for field in dataclasses.fields(cast(Any, section)))


def _place(location: Sequence[int | str], root: type) -> tuple[str, type | None]:
    """Return the key as a reader of the file would write it, and the section there, if it is one."""
    parts: list[str] = []
    section: type | None = root
    for part in location:
        if part in ALTERNATIVES:
            continue
        parts.append(str(part)[:LONGEST_VALUE])
        if isinstance(part, str):
            fields = section.model_fields if section and issubclass(section, BaseModel) else {}
            section = _section_in(fields[part].annotation) if part in fields else None
        if section is None:  # what follows names the alternatives of a type, not keys
            break
    return ".".join(parts) or "study", section


def _section_in(annotation: Any) -> type | None:
    """Return the section that a value of this type is, or is a list of."""
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation)):
        return annotation
    return next(filter(None, map(_section_in, get_args(annotation))), None)


def _problem(problem: Any, section: type | None, root: type) -> tuple[str, str]:
    """Return what was given, and why it is not accepted."""
    kind = problem["type"]
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return "", f"unknown key; accepted: {keys_of(_place(problem['loc'][:-1], root)[1] or root)}"
    mapping = f"a mapping with the keys {keys_of(section)} is expected" if section else ""
    if kind in ("missing", "missing_argument"):
        return "", f"missing; {mapping or 'a value is expected'}"
    if kind in ("model_type", "dataclass_type"):
        reason = mapping
    elif kind in ("tuple_type", "too_short"):
        reason = "a list of at least one is expected"
    elif kind == "path_type":
        reason = "a path"
    else:
        message = problem["msg"].removeprefix("Value error, ")
        reason = message[0].lower() + message[1:]
    return f"{shortened(problem['input'])} is not accepted; ", reason
