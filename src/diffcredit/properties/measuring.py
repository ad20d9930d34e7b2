"""Measuring properties, ours and users', with the same care: a number, or an error that says why not."""

import math
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from diffcredit.errors import DiffcreditError
from diffcredit.properties.protocol import Images


@dataclass(frozen=True)
class Measurement:
    """A property's value, or the error that kept it from having one; never both."""

    property: str
    value: float | None = None
    error: str | None = None


def measure_all(properties: Sequence[Any], images: Images, model: Any) -> list[Measurement]:
    """Each property of one model. One that fails is recorded as failed; the others are kept."""
    return [_measure(prop, images, model) for prop in properties]


def _measure(prop: Any, images: Images, model: Any) -> Measurement:
    try:
        # a copy, since what one property writes into its images must not change another's
        value = prop.measure_model(model) if needs_model(prop) else prop.measure(images.copy())
        return Measurement(prop.name, checked(prop.name, value))
    except Exception:  # a user's code may raise anything, and the other properties must survive it
        return Measurement(prop.name, error=traceback.format_exc(limit=8))


def needs_model(prop: Any) -> bool:
    """Whether a property measures the model itself and not its images."""
    return hasattr(prop, "measure_model")


def checked(name: str, value: Any) -> float:
    """``value`` as a float; refuses what is no finite real number, and says what it got."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise DiffcreditError(f"property {name!r} returned {type(value).__name__} {value!r}; a float is expected")
    if not math.isfinite(value):
        raise DiffcreditError(f"property {name!r} returned {value}; a finite number is expected")
    return float(value)
