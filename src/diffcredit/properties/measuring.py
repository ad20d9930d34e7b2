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
    """A property's value, or the error that kept it from having one; never both.

    ``standard_error`` is how much the value would change with other generated images; None: the property does not
    tell.
    """

    property: str
    value: float | None = None
    standard_error: float | None = None
    error: str | None = None


def measure_all(properties: Sequence[Any], images: Images, model: Any) -> list[Measurement]:
    """Each property of one model. One that fails is recorded as failed; the others are kept."""
    return [_measure(prop, images, model) for prop in properties]


def _measure(prop: Any, images: Images, model: Any) -> Measurement:
    try:
        # a copy, since what one property writes into its images must not change another's
        value = prop.measure_model(model) if needs_model(prop) else prop.measure(images.copy())
        return Measurement(prop.name, checked(prop.name, value), _standard_error(prop, images))
    except Exception:  # a user's code may raise anything, and the other properties must survive it
        return Measurement(prop.name, error=traceback.format_exc(limit=8))


def _standard_error(prop: Any, images: Images) -> float | None:
    if not hasattr(prop, "standard_error") or len(images) < 2:  # one image tells nothing about others
        return None
    error = checked(prop.name, prop.standard_error(images.copy()), "a standard error")
    if error < 0:
        raise DiffcreditError(f"property {prop.name!r} returned a standard error of {error}; it is never negative")
    return error


def needs_model(prop: Any) -> bool:
    """Whether a property measures the model itself and not its images."""
    return hasattr(prop, "measure_model")


def checked(name: str, value: Any, what: str = "") -> float:
    """``value`` as a float; refuses what is no finite real number, and says what it got as ``what``."""
    returned = f"property {name!r} returned {f'{what}: ' if what else ''}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise DiffcreditError(f"{returned}{type(value).__name__} {value!r}; a float is expected")
    if not math.isfinite(value):
        raise DiffcreditError(f"{returned}{value}; a finite number is expected")
    return float(value)
