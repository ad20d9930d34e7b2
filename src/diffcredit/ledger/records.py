"""What the ledger holds: immutable records made of JSON values."""

from dataclasses import dataclass, field
from typing import Any

from diffcredit.ledger.purposes import PURPOSES
from diffcredit.util.artifacts import fingerprint

STATUSES = ("done", "failed")


@dataclass(frozen=True)
class RecipeRecord:
    """How a coalition becomes images: all that fixes an evaluation but the coalition and the replicate.

    ``settings`` is nested JSON (data, model, retraining, sampling, seed); ``weights`` is the hash of what the
    coalitions' models start from, empty if they start from nothing.
    """

    name: str
    settings: dict[str, Any]
    weights: str = ""

    @property
    def fingerprint(self) -> str:
        return fingerprint({"settings": self.settings, "weights": self.weights})


@dataclass(frozen=True)
class PropertyRecord:
    """A property as it measured: its settings, and the hash of its fitted state (empty if it has none)."""

    name: str
    settings: dict[str, Any]
    higher_is_better: bool
    state: str = ""

    @property
    def fingerprint(self) -> str:
        return fingerprint({"settings": self.settings, "state": self.state})


@dataclass(frozen=True)
class Value:
    """One property of one evaluation: a number, or the error that prevented it. ``images`` is how many it was measured
    on; None: on the model itself, or not told."""

    property: str
    value: float | None
    standard_error: float | None = None
    images: int | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.error is None):
            raise ValueError(f"property {self.property!r}: exactly one of value and error must be given")


@dataclass(frozen=True)
class Evaluation:
    """One coalition retrained, sampled and measured, or the failed attempt to do so.

    ``coalition`` is a text of n characters, "1" where the contributor takes part. A *done* evaluation was
    retrained and sampled, though a property may have failed to measure it (see :class:`Value`); a *failed*
    one carries its traceback in ``error``. ``seconds`` tells where the time went (training, sampling,
    measuring), ``numerics`` names the class within which numbers are bitwise equal (device, dtype, threads,
    …), ``versions`` the packages behind them. ``started`` and ``finished`` are ISO 8601 in UTC.
    """

    coalition: str
    replicate: int
    purpose: str
    status: str
    values: tuple[Value, ...]
    error: str | None
    numerics: dict[str, Any]
    seconds: dict[str, float]
    worker: str
    started: str
    finished: str
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        """The coalition and replicate, by which the ledger identifies an evaluation."""
        return self.coalition, self.replicate

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
        names = [value.property for value in self.values]
        if len(set(names)) < len(names):
            raise ValueError(f"coalition {self.coalition}: one property has two values in {names}")
