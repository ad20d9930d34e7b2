"""Measuring properties: each gives a finite number within its range, or an error that says why not.

Example::

    observation = Observation(Extractors(), images)  # (m, h, w, 3) uint8
    (measurement,) = measure_all([Colourfulness()], observation)
    print(measurement.value, measurement.standard_error)
"""

import math
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, cast

import numpy as np

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.features import Features, FeaturesOption, Images
from diffcredit.features.extractors import Extractors, check_images
from diffcredit.properties.base import Property, as_property, has_standard_error, needs_features, needs_model
from diffcredit.properties.prompted import rows_of
from diffcredit.util.artifacts import fingerprint

SLACK = 1e-6  # how far rounding may exceed a range, relative to its larger bound


@dataclass(frozen=True)
class Measurement:
    """A property's value, or the error because of which it has none.

    ``standard_error`` is the value's standard deviation over fresh sets of generated images (None: not known).
    ``images`` is the number of images measured (None: the model itself was measured).
    """

    property: str
    value: float | None = None
    standard_error: float | None = None
    images: int | None = None
    error: str | None = None


@dataclass
class Observation:
    """Everything that can be measured of one coalition's model: its images, their features, the model itself.

    None: it was not kept. Features, by their extractors' fingerprints, are added as properties need them.
    """

    extractors: Extractors
    images: Images | None = None
    model: Any = None
    features: dict[str, Features] = field(default_factory=dict)

    def extracted(self, option: FeaturesOption) -> Features:
        """Return the images' features, extracted once."""
        key = fingerprint(self.extractors.identity(option))
        if key not in self.features:
            if self.images is None:
                raise DiffcreditError(f"features: neither images nor features of {option!r} were kept")
            self.features[key] = self.extractors.extract(option, self.images)
        return self.features[key]

    def input_of(self, prop: Property) -> Images | Features:
        """Return the images or features that a property measures."""
        if needs_features(prop):
            features = self.extracted(prop.features)
            return features.select(rows_of(prop, len(features)))
        check_images(self.images)
        images = cast(Images, self.images)
        return images[rows_of(prop, len(images))]

    def suffices_for(self, prop: Property) -> bool:
        """Whether the property can be measured on this."""
        if needs_model(prop):
            return self.model is not None
        if needs_features(prop) and fingerprint(self.extractors.identity(prop.features)) in self.features:
            return True
        return self.images is not None


def measure_all(properties: Sequence[Any], observation: Observation) -> list[Measurement]:
    """Measure each property of one model. One that fails is recorded as failed; the others keep their values."""
    return [_measure(as_property(prop), observation) for prop in properties]


def measured_value(prop: Property, observed: Images | Features) -> float:
    """Measure a property on a copy of images or features; raise an error unless it is a number within its range."""
    observed = copied(observed)  # what one property writes into its input must not change another's
    if isinstance(observed, Features):
        check_enough(prop, len(observed), observed.vectors.shape[1])
        value = prop.measure_features(observed)
    else:
        value = prop.measure(observed)
    return checked(prop.name, value, within=prop.range)


def check_enough(prop: Property, images: int, dimensions: int) -> None:
    """Raise a UserError if there are fewer images than the property needs."""
    least = prop.least(dimensions)
    if images < least:
        found = f"{images} images for features of {dimensions} dimensions"
        raise UserError(f"{prop.name}: {found}; at least {least} are needed")


def _measure(prop: Property, observation: Observation) -> Measurement:
    try:
        if needs_model(prop):
            value = checked(prop.name, prop.measure_model(observation.model), within=prop.range)
            return Measurement(prop.name, value, _standard_error(prop, observation.images))
        observed = observation.input_of(prop)
        value = measured_value(prop, observed)
        return Measurement(prop.name, value, _standard_error(prop, observed), len(observed))
    except Exception:  # a user's code may raise anything, and the other properties must survive it
        return Measurement(prop.name, error=traceback.format_exc(limit=8))


def _standard_error(prop: Property, observed: Images | Features | None) -> float | None:
    if observed is None or len(observed) < 2 or not has_standard_error(prop):
        return None
    error = checked(prop.name, prop.standard_error(copied(observed)), "a standard error")
    if error < 0:
        raise DiffcreditError(f"property {prop.name!r} returned a standard error of {error}; it is never negative")
    return error


def copied(observed: Images | Features) -> Images | Features:
    """Return a copy of images or features, to be written into."""
    if isinstance(observed, np.ndarray):
        return observed.copy()
    return Features(**{name: array.copy() for name, array in observed.arrays().items()})


def checked(name: str, value: Any, what: str = "", within: tuple[float, float] | None = None) -> float:
    """Return ``value`` as a float; raise an error, which calls it ``what``, unless it is finite and ``within``."""
    returned = f"property {name!r} returned {f'{what}: ' if what else ''}"
    if isinstance(value, bool) or not isinstance(value, Real):
        text = repr(value)
        found = f"{type(value).__name__} {text if len(text) <= 60 else text[:59] + '…'}"
        raise DiffcreditError(f"{returned}{found}; a float is expected{_remedy(value)}")
    if not math.isfinite(value):
        raise DiffcreditError(f"{returned}{value}; a finite number is expected")
    if within is not None:
        low, high = within
        slack = SLACK * max([1.0, *(abs(bound) for bound in within if math.isfinite(bound))])
        if not low - slack <= value <= high + slack:
            raise DiffcreditError(f"{returned}{float(value)!r}; its range is {low:g} to {high:g}")
    return float(value)


def _remedy(value: Any) -> str:
    """Say how to make a float of ``value``, where that is known."""
    if value is None:
        return " (is a return missing?)"
    if getattr(value, "shape", None) is not None and callable(getattr(value, "item", None)):  # numpy's or torch's
        size = math.prod(value.shape)
        return " (return value.item())" if size == 1 else f" (of {size} numbers: return their mean, for example)"
    return ""
