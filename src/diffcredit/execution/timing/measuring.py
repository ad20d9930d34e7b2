"""The time that measuring an evaluation's properties takes on this machine."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from diffcredit.diffusion.model import DiffusionModel
from diffcredit.errors import DiffcreditError
from diffcredit.features import Extractor, Features, FeaturesOption, Images
from diffcredit.features.base import option_key
from diffcredit.features.extractors import Extractors, check_images
from diffcredit.properties import Property, as_property
from diffcredit.properties.base import Context, State, needs_features, needs_fitting, needs_model
from diffcredit.properties.measuring import Observation, measure_all
from diffcredit.properties.prompted import PromptedProperty, images_of
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.sanitize import last_line

LONG = 2.0  # seconds; a first run that takes longer needs no second
FEWEST = 4  # the size of the smallest work that is timed
ENOUGH = 5.0  # seconds of work; if it takes longer, the rest is extrapolated
DISTINCT = 1000  # random images; more than that repeat them


@dataclass(frozen=True)
class MeasuringTime:
    """Seconds of extracting features and of measuring properties; ``left_out`` has the reason for each property that
    could not be measured on random images or features."""

    features: float
    properties: float
    left_out: Mapping[str, str]

    @property
    def seconds(self) -> float:
        return self.features + self.properties


def time_measuring(
    properties: Sequence[Any], states: Mapping[str, State], model: DiffusionModel, images: int, context: Context
) -> MeasuringTime:
    """Time what an evaluation of ``model`` does with ``properties``, on that many random ``images`` or their features.
    Properties without a fitted state in ``states`` (by name) are fitted here to ``context``, with random features."""
    features: dict[str, float] = {}
    seconds, left_out = 0.0, {}
    for prop in map(as_property, properties):
        try:
            if needs_features(prop) and (key := option_key(prop.features)) not in features:
                features[key] = _seconds_of_extracting(prop.features, images, context)
            seconds += _seconds_of(prop, states.get(prop.name), model, images, context)
        except Exception as error:  # a user's code may raise anything on random images
            left_out[prop.name] = " ".join(str(error).split()) or type(error).__name__
    return MeasuringTime(sum(features.values()), seconds, left_out)


def _seconds_of_extracting(option: FeaturesOption, images: int, context: Context) -> float:
    def seconds_of(count: int) -> float:
        some = random_images(count, context.contributions.images.shape[1])
        return _again(partial(context.extractors.extract, option, some))

    return extrapolate(seconds_of, images)


def _seconds_of(prop: Property, state: State | None, model: DiffusionModel, images: int, context: Context) -> float:
    stand_in = dataclasses.replace(context, extractors=StandInExtractors(context.extractors))
    if needs_model(prop):
        return _seconds_on_model(prop, model, stand_in)
    if needs_fitting(prop):
        prop.restore(prop.fit(stand_in) if state is None else state)
    whole = prop.whole if isinstance(prop, PromptedProperty) else prop

    def seconds_of(count: int) -> float:
        return _seconds_on(whole, _observation(whole, model, count, stand_in))

    return extrapolate(seconds_of, images_of(prop, images))


def _seconds_on_model(prop: Property, model: DiffusionModel, context: Context) -> float:
    """Time a property of the model itself. It may be expensive, and grow with the number of held-out images."""
    whole = context.contributions

    def seconds_of(heldout: int) -> float:
        if needs_fitting(prop):
            captions = whole.heldout_captions and whole.heldout_captions[:heldout]
            some = dataclasses.replace(whole, heldout=whole.heldout[:heldout], heldout_captions=captions)
            prop.restore(prop.fit(dataclasses.replace(context, contributions=some)))
        return _seconds_on(prop, Observation(context.extractors, context.generated, model))

    return extrapolate(seconds_of, len(whole.heldout) if needs_fitting(prop) else 0)


def _observation(prop: Property, model: DiffusionModel, count: int, context: Context) -> Observation:
    extractors = context.extractors
    if not needs_features(prop):
        return Observation(extractors, random_images(count, context.contributions.images.shape[1]), model)
    features = random_features(extractors.get(prop.features), count, np.random.default_rng(count))
    return Observation(extractors, None, model, {fingerprint(extractors.identity(prop.features)): features})


def _seconds_on(prop: Any, observation: Observation) -> float:
    def measured() -> None:
        (measurement,) = measure_all([prop], observation)
        if measurement.error is not None:
            raise DiffcreditError(last_line(measurement.error))

    return _again(measured)


def _again(work: Callable[[], object]) -> float:
    """Return the seconds of ``work`` once it is warm, or of the first time if that takes long."""
    seconds = 0.0
    for _ in range(2):
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
        if seconds > LONG:
            break
    return seconds


def extrapolate(seconds_of: Callable[[int], float], size: int) -> float:
    """Estimate ``seconds_of(size)`` from sizes that double until the work takes long enough to show how it grows. Sizes
    that are too small may raise anything; what ``seconds_of(size)`` itself raises is raised here."""

    def tried(count: int) -> float | None:
        try:
            return seconds_of(count)
        except Exception:  # a larger size may work
            return None

    before, count = None, min(FEWEST, size)
    while count < size:
        seconds = tried(count)
        if seconds is not None and seconds > ENOUGH:
            before = tried(count // 2) if before is None else before
            return _grown(before, seconds, size / count)
        before, count = seconds, min(2 * count, size)
    return seconds_of(size)


def _grown(before: float | None, seconds: float, times: float) -> float:
    """Estimate the time for ``times`` × the work that took ``seconds``, linearly or by power law, whichever is larger.
    Half of it took ``before``; where that is unknown (None), the estimate is proportional."""
    if not before:
        return seconds * times
    slope = max(0.0, 2 * (seconds - before))
    power = max(0.0, math.log2(seconds / before))
    return max(seconds + (times - 1) * slope, seconds * times**power)


def random_images(count: int, side: int) -> Images:
    """Return random images (count, side, side, 3) uint8."""
    shape = (min(count, DISTINCT), side, side, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return images if len(images) == count else images[np.arange(count) % len(images)]


def random_features(extractor: Extractor, count: int, random: np.random.Generator) -> Features:
    """Return random features of ``count`` images, in the extractor's shapes."""
    vectors = random.standard_normal((count, extractor.dimensions), dtype=np.float32)
    if extractor.classes is None:
        return Features(vectors)
    return Features(vectors, random.standard_normal((count, extractor.classes), dtype=np.float32))


class StandInExtractors(Extractors):
    """The ``real`` extractors with random features for all images; nothing is cached."""

    def __init__(self, real: Extractors) -> None:
        vars(self).update(vars(real))  # what is loaded is shared
        self._random = np.random.default_rng(0)

    def extract(
        self, option: FeaturesOption, images: Images, on_batch: Callable[[int, int], None] | None = None
    ) -> Features:
        check_images(images)
        return random_features(self.get(option), len(images), self._random)

    def kept(self, option: FeaturesOption, images: Images, what: str) -> Features:
        return self.extract(option, images)
