"""Measuring properties, ours and users', with the same care: a number, or an error that says why not."""

import math
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, cast

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.features import Features, FeaturesOption, Images
from diffcredit.features.extractors import Extractors, check_images
from diffcredit.util.artifacts import fingerprint

OUTSIDE = 1e-6  # of a range's larger bound: what rounding may exceed it by


@dataclass(frozen=True)
class Measurement:
    """A property's value, or the error that kept it from having one; never both.

    ``standard_error`` is how much the value would change with other generated images; None: the property does not
    tell. ``images`` is how many it was measured on; None: on the model itself.
    """

    property: str
    value: float | None = None
    standard_error: float | None = None
    images: int | None = None
    error: str | None = None


@dataclass
class Observation:
    """What there is of one coalition's model to be measured: its images, their features by the extractors'
    fingerprints, the model itself. What is None or lacking was not kept; features are added as they are asked for."""

    extractors: Extractors
    images: Images | None = None
    model: Any = None
    features: dict[str, Features] = field(default_factory=dict)

    def seen_by(self, option: FeaturesOption) -> Features:
        """The images' features, extracted once."""
        key = fingerprint(self.extractors.identity(option))
        if key not in self.features:
            if self.images is None:
                raise DiffcreditError(f"features: neither images nor features of {option!r} were kept")
            self.features[key] = self.extractors.extract(option, self.images)
        return self.features[key]

    def seen(self) -> Images:
        """The images themselves."""
        check_images(self.images)
        return cast(Images, self.images)

    def shows(self, prop: Any) -> bool:
        """Whether the property can be measured on what there is."""
        if needs_model(prop):
            return self.model is not None
        if needs_features(prop) and fingerprint(self.extractors.identity(prop.features)) in self.features:
            return True
        return self.images is not None


def measure_all(properties: Sequence[Any], observation: Observation) -> list[Measurement]:
    """Each property of one model. One that fails is recorded as failed; the others are kept."""
    return [_measure(prop, observation) for prop in properties]


def measured_value(prop: Any, observed: Images | Features) -> float:
    """The property of images or, where it is one of features, of those."""
    if isinstance(observed, Features):
        check_enough(prop, len(observed), observed.vectors.shape[1])
        value = prop.measure_features(observed)
    else:
        value = prop.measure(observed)
    return checked(prop.name, value, within=getattr(prop, "range", None))


def check_enough(prop: Any, images: int, dimensions: int) -> None:
    """Refuses fewer images than the property can be measured on."""
    least = prop.least(dimensions) if hasattr(prop, "least") else 1
    if images < least:
        raise UserError(
            f"{prop.name}: {images} images for features of {dimensions} dimensions; at least {least} are needed"
        )


def _measure(prop: Any, observation: Observation) -> Measurement:
    try:
        if needs_model(prop):
            value = checked(prop.name, prop.measure_model(observation.model), within=getattr(prop, "range", None))
            return Measurement(prop.name, value, _standard_error(prop, observation.images))
        observed = observation.seen_by(prop.features) if needs_features(prop) else observation.seen()
        # a copy, since what one property writes into its images must not change another's
        value = measured_value(prop, copied(observed))
        return Measurement(prop.name, value, _standard_error(prop, observed), len(observed))
    except Exception:  # a user's code may raise anything, and the other properties must survive it
        return Measurement(prop.name, error=traceback.format_exc(limit=8))


def _standard_error(prop: Any, observed: Any) -> float | None:
    if not hasattr(prop, "standard_error") or observed is None or len(observed) < 2:  # one tells nothing of others
        return None
    error = checked(prop.name, prop.standard_error(copied(observed)), "a standard error")
    if error < 0:
        raise DiffcreditError(f"property {prop.name!r} returned a standard error of {error}; it is never negative")
    return error


def copied(observed: Any) -> Any:
    """Images or features that may be written into."""
    if isinstance(observed, Features):
        return Features(**{name: array.copy() for name, array in observed.arrays().items()})
    return observed.copy()


def needs_model(prop: Any) -> bool:
    """Whether a property measures the model itself and not its images."""
    return hasattr(prop, "measure_model")


def needs_features(prop: Any) -> bool:
    """Whether a property measures what an extractor sees in the images."""
    return hasattr(prop, "measure_features")


def checked(name: str, value: Any, what: str = "", within: tuple[float, float] | None = None) -> float:
    """``value`` as a float; refuses what is no finite real number, or outside a range, and says what it got as
    ``what``."""
    returned = f"property {name!r} returned {f'{what}: ' if what else ''}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise DiffcreditError(f"{returned}{_shown(value)}; a float is expected{_remedy(value)}")
    if not math.isfinite(value):
        raise DiffcreditError(f"{returned}{value}; a finite number is expected")
    if within is not None:
        low, high = within
        slack = OUTSIDE * max([1.0, *(abs(bound) for bound in within if math.isfinite(bound))])
        if not low - slack <= value <= high + slack:
            raise DiffcreditError(f"{returned}{float(value)!r}; its range is {low:g} to {high:g}")
    return float(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:59] + '…'}"


def _remedy(value: Any) -> str:
    """What turns ``value`` into a float, where that is plain."""
    if value is None:
        return " (is a return missing?)"
    if getattr(value, "shape", None) is not None and callable(getattr(value, "item", None)):
        size = math.prod(value.shape)
        return " (return value.item())" if size == 1 else f" (of {size} numbers: return their mean, for example)"
    return ""
