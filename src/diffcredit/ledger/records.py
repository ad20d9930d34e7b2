"""The records that a ledger holds: immutable, and made of JSON values; and how two settings differ."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from numbers import Real
from typing import Any

from diffcredit.ledger.purposes import PURPOSES
from diffcredit.util.artifacts import canonical_json, fingerprint
from diffcredit.util.sanitize import truncated

STATUSES = ("done", "failed")
_ABSENT = object()
MOST_LINES = 6  # differences in a message


@dataclass(frozen=True)
class RecipeRecord:
    """How a coalition becomes images: all that determines an evaluation except the coalition and the replicate."""

    name: str
    settings: dict[str, Any]
    """Nested JSON: data, model, retraining, sampling, seed."""
    weights: str = ""
    """The hash of the weights that every coalition's model starts from; empty where it starts from nothing."""

    @property
    def fingerprint(self) -> str:
        """The hash of what determines the images; the name is not part of it."""
        return fingerprint({"settings": self.settings, "weights": self.weights})


@dataclass(frozen=True)
class PropertyRecord:
    """A property: how a model's images become a number."""

    name: str
    settings: dict[str, Any]
    higher_is_better: bool
    state: str = ""
    """The hash of what the property was fitted to; empty where nothing is fitted."""

    @property
    def fingerprint(self) -> str:
        """The hash of what determines the number; neither the name nor the direction is part of it."""
        return fingerprint({"settings": self.settings, "state": self.state})


@dataclass(frozen=True)
class Entry:
    """What else decides or follows from a study's credits: a policy, a payout."""

    kind: str
    """What it is, such as ``policy``."""
    name: str
    content: dict[str, Any]
    """Nested JSON."""
    entered: str
    """ISO 8601 in UTC."""
    before_evaluations: bool = True
    """Whether its row stands before the study's first evaluation in the chain. The ledger finds this."""
    head: str = ""
    """The hash of its row's link in the chain: the study's head when it was entered. The ledger finds this."""

    @property
    def row(self) -> dict[str, Any]:
        """The columns of its row."""
        return {"kind": self.kind, "name": self.name, "content": self.content, "entered": self.entered}

    def __post_init__(self) -> None:
        texts = (self.kind, self.name, self.entered)
        if not all(isinstance(text, str) for text in texts) or not isinstance(self.content, dict):
            raise ValueError("an entry has a kind, a name, a content and a time")


@dataclass(frozen=True)
class Value:
    """One property of one evaluation: a number, or the error that prevented it."""

    property: str
    value: float | None
    standard_error: float | None = None
    images: int | None = None
    """How many images it was measured on. None where it was measured on the model itself, or where this is unknown."""
    error: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.error is None):
            raise ValueError(f"property {self.property!r}: exactly one of value and error must be given")


@dataclass(frozen=True)
class Evaluation:
    """One coalition retrained, sampled and measured, or the failed attempt to do so."""

    coalition: str
    """One character for each contributor: "1" where it takes part, else "0"."""
    replicate: int
    """Distinguishes evaluations of the same coalition: each has its own seeds."""
    purpose: str
    """One of :data:`~diffcredit.ledger.purposes.PURPOSES`."""
    status: str
    """``done``: retrained and sampled, though measuring a property may have failed. ``failed``: see ``error``."""
    values: tuple[Value, ...]
    error: str | None
    """The traceback of a failed attempt."""
    numerics: dict[str, Any]
    """The class within which numbers are bitwise equal: device, dtype, threads, …"""
    seconds: dict[str, float]
    """How long training, sampling and measuring took."""
    worker: str
    started: str
    """ISO 8601 in UTC, like ``finished``."""
    finished: str
    versions: dict[str, str] = field(default_factory=dict)
    """The versions of the packages that computed the numbers."""

    @property
    def key(self) -> tuple[str, int]:
        """The coalition and replicate, which identify an evaluation within its recipe."""
        return self.coalition, self.replicate

    @property
    def measured(self) -> dict[str, float]:
        """The values by property, without those that could not be measured."""
        return {value.property: value.value for value in self.values if value.value is not None}

    def __post_init__(self) -> None:
        if not self.coalition or set(self.coalition) - {"0", "1"}:
            raise ValueError(f"coalition {self.coalition!r}: must consist of 0 and 1")
        if self.replicate < 0:
            raise ValueError(f"replicate {self.replicate}: must not be negative")
        if self.purpose not in PURPOSES:
            raise ValueError(f"purpose {self.purpose!r}: must be one of {', '.join(PURPOSES)}")
        if self.status not in STATUSES:
            raise ValueError(f"status {self.status!r}: must be one of {', '.join(STATUSES)}")
        if (self.error is None) != (self.status == "done"):
            raise ValueError("a failed evaluation has an error, a done one has none")
        for stamp in filter(None, (self.started, self.finished)):
            _check_time(stamp)
        for stage, seconds in self.seconds.items():
            if not isinstance(seconds, Real) or not math.isfinite(seconds):
                raise ValueError(f"seconds of {stage}: {seconds!r} is no number")
        names = [value.property for value in self.values]
        if len(set(names)) < len(names):
            raise ValueError(f"coalition {self.coalition}: one property has two values in {names}")


def _check_time(stamp: str) -> None:
    try:
        datetime.fromisoformat(stamp).timestamp()
    except (TypeError, ValueError, OverflowError, OSError) as error:  # the last two: too long ago
        raise ValueError(f"{stamp!r} is no time by ISO 8601") from error


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


def changed_settings(kind: str, name: str, lines: Sequence[str]) -> str:
    """Return the message that refuses a study, recipe or property whose settings differ from those recorded, by the
    :func:`differences`."""
    more = f"; and {len(lines) - MOST_LINES} more" if len(lines) > MOST_LINES else ""
    named = "retraining" if kind == "recipe" else kind
    return (
        f"{kind} {name!r} changed: {'; '.join(lines[:MOST_LINES])}{more} (recorded → stated now); give the {named} "
        "another name or restore the settings"
    )


def _text(value: Any) -> str:
    return "(absent)" if value is _ABSENT else canonical_json(value)
