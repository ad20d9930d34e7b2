"""Error messages for a study file: the key, the value and what is accepted."""

import dataclasses
from collections.abc import Iterable
from typing import Any, cast

from pydantic import BaseModel

from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.study.sections import (
    ContributionsSection,
    CorrelationSection,
    DesignSection,
    ModelSection,
    MoneySection,
    PropertySection,
    RetrainingSection,
    StopSection,
    SurrogateSection,
    TopSection,
    ValidationSection,
    WidthSection,
)
from diffcredit.util.sanitize import LONGEST_VALUE, shortened

_SECTIONS: dict[str, type] = {
    "contributions": ContributionsSection,
    "model": ModelSection,
    "train": Training,
    "retraining": RetrainingSection,
    "sampling": Sampling,
    "properties": PropertySection,
    "surrogates": SurrogateSection,
    "validation": ValidationSection,
    "retrainings": RetrainingSection,
    "design": DesignSection,
    "stop": StopSection,
    "any": StopSection,
    "all": StopSection,
    "money": MoneySection,
    "width": WidthSection,
    "correlation": CorrelationSection,
    "top": TopSection,
}


def keys_of(section: type) -> list[str]:
    """Return the keys that a section of a study file accepts."""
    if issubclass(section, BaseModel):
        return [field.alias or name for name, field in section.model_fields.items()]
    return [field.name for field in dataclasses.fields(cast(Any, section))]


def describe(problems: Iterable[Any], whole: type) -> str:
    """Return a message with each key's problem, at most three; ``whole`` is the type of the whole study file."""
    reasons: dict[str, list[str]] = {}
    values: dict[str, str] = {}
    for problem in problems:
        if problem["type"] == "too_short" and problem["input"]:
            continue  # only because its items are wrong, which other problems say
        key, section = _key(problem["loc"], whole)
        value, reason = _problem(problem, section, whole)
        values[key] = value
        reasons.setdefault(key, []).append(reason)
    return "; ".join(f"{key}: {values[key]}{' or '.join(reasons[key])}" for key in list(reasons)[:3])


def _key(location: tuple[int | str, ...], whole: type) -> tuple[str, type | None]:
    """Return the key as a reader of the study file would write it, and the section there, if it is one."""
    parts: list[str] = []
    section: type | None = whole
    for part in location:
        parts.append(str(part)[:LONGEST_VALUE])
        section = section if isinstance(part, int) else _SECTIONS.get(part)
        if section is None:  # what follows names the alternatives of a type, not keys
            break
    return ".".join(parts) or "study", section


def _problem(problem: Any, section: type | None, whole: type) -> tuple[str, str]:
    """Return what was given, and why it is not accepted."""
    kind = problem["type"]
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        *above, _ = problem["loc"]
        return "", f"unknown key; accepted: {', '.join(keys_of(_key(tuple(above), whole)[1] or whole))}"
    mapping = f"a mapping with the keys {', '.join(keys_of(section))} is expected" if section else ""
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
