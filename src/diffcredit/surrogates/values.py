"""The values of one surrogate at the coalitions asked for so far, and its credits.

Reading known values needs neither the surrogate nor the properties; they are loaded to measure missing ones.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from diffcredit.coalitions import decode, encode, make_design
from diffcredit.coalitions.designs import LARGEST
from diffcredit.credit import Credits, surrogate_credits
from diffcredit.errors import DiffcreditError
from diffcredit.features import Features, Images
from diffcredit.features.extractors import Extractors
from diffcredit.properties import Property, as_property
from diffcredit.properties.base import needs_features, needs_model
from diffcredit.properties.measuring import Observation, measured_value
from diffcredit.properties.prompted import PromptedProperty
from diffcredit.surrogates.base import ImageSurrogate, Surrogate
from diffcredit.util.arrays import BoolArray
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.progress import Progress

SECONDS = 15.0  # between writes of the values

Loaded = tuple[ImageSurrogate, Sequence[Property], Extractors]  # prepared, fitted


Known = dict[str, float] | None
"""A property's values by coalition; None where the surrogate has none of it."""


class SurrogateValues:
    """G of every one of the ``properties`` at any coalition, each measured once.

    There is none of a property that measures the model itself, nor of an ``ordered`` one without ``keeps_seeds``: one
    with prompts is ordered.
    ``known`` are the values so far by property, ``keep`` is called with a property and all its values when there are
    more, and ``load`` to measure missing ones.
    """

    def __init__(
        self,
        name: str,
        properties: Collection[str],
        known: Mapping[str, Known],
        keep: Callable[[str, Known], object],
        load: Callable[[], Loaded],
        progress: Progress,
    ) -> None:
        self.name, self._properties, self._load, self._progress = name, properties, load, progress
        self._library: dict[str, Features] = {}
        self._known, self._keep_values = dict(known), keep

    def stands_in_for(self, prop: str) -> bool:
        """Whether there is a G of this property."""
        if prop in self._properties and prop not in self._known:
            _ = self._loaded
        return self._known.get(prop) is not None

    def is_missing(self, prop: str, coalitions: BoolArray) -> bool:
        """Whether a value at these coalitions is missing."""
        return prop not in self._known or any(self._is_missing(prop, text) for text in map(encode, coalitions))

    def _is_missing(self, prop: str, text: str) -> bool:
        known = self._known[prop]
        return known is not None and text not in known

    def game(self, prop: str) -> Surrogate:
        """Return G of a property that the surrogate stands in for."""

        def values(coalitions: BoolArray) -> NDArray[np.float64]:
            texts = [encode(coalition) for coalition in coalitions]
            self._fill(prop, texts)
            return np.array([(self._known[prop] or {})[text] for text in texts], dtype=np.float64)

        return values

    @cached_property
    def _loaded(self) -> Loaded:
        source, every, extractors = self._load()
        properties = [as_property(prop) for prop in every if prop.name in self._properties]
        for prop in properties:
            if prop.name not in self._known:
                disordered = prop.ordered and not source.keeps_seeds
                self._known[prop.name] = None if needs_model(prop) or disordered else {}
                self._keep(prop.name)
        return source, properties, extractors

    def _fill(self, prop: str, texts: Sequence[str]) -> None:
        """Measure missing values, every property on the same images."""
        known = self._known.get(prop)
        missing = [text for text in dict.fromkeys(texts) if known is None or text not in known]
        if not missing:
            return
        source, properties, extractors = self._loaded
        what, kept = f"measuring the surrogate {self.name}", time.monotonic()
        try:
            for done, text in enumerate(missing, start=1):
                unmeasured = [prop for prop in properties if self._is_missing(prop.name, text)]
                observation = self._observation(source, extractors, decode(text), unmeasured)
                for each in unmeasured:
                    values = self._known[each.name]
                    assert values is not None  # or nothing would be missing
                    values[text] = self._measured(each, source, decode(text), observation)
                self._progress(what, done, len(missing))
                if time.monotonic() - kept > SECONDS:
                    self._keep()
                    kept = time.monotonic()
        finally:
            self._keep()

    def _observation(
        self, source: ImageSurrogate, extractors: Extractors, coalition: BoolArray, properties: Sequence[Property]
    ) -> Observation:
        """Return a coalition's images, with their features where they are from a library."""
        observation = Observation(extractors, source.images(coalition))
        if source.library is not None:
            rows = source.rows(coalition)
            for option in (prop.features for prop in properties if needs_features(prop)):
                key = fingerprint(extractors.identity(option))
                if key not in self._library:
                    self._library[key] = extractors.kept(option, source.library, f"the surrogate {self.name}'s images")
                observation.features[key] = self._library[key].select(rows)
        return observation

    def _input(
        self, prop: Property, source: ImageSurrogate, coalition: BoolArray, observation: Observation
    ) -> Images | Features:
        """Return the images or features that a property measures."""
        if source.library is None or observation.images is None or not isinstance(prop, PromptedProperty):
            return observation.input_of(prop)
        rows = source.rows_for(coalition, prop.rows(len(observation.images)))
        if needs_features(prop):
            return self._library[fingerprint(observation.extractors.identity(prop.features))].select(rows)
        return source.library[rows]

    def _measured(
        self, prop: Property, source: ImageSurrogate, coalition: BoolArray, observation: Observation
    ) -> float:
        try:
            return measured_value(prop, self._input(prop, source, coalition, observation))
        except Exception as error:  # a user's code may raise anything
            raise DiffcreditError(
                f"surrogate {self.name!r}: property {prop.name!r} cannot be measured on its images "
                f"({type(error).__name__}: {error})"
            ) from error

    def _keep(self, *properties: str) -> None:
        for prop in properties or self._known:
            self._keep_values(prop, self._known[prop])


def own_credits(surrogate: Surrogate, n: int, most: int, seed: int = 0) -> Credits:
    """Return φ(G), exact if G has at most ``most`` coalitions (and n ≤ 16), else estimated from ``most`` random ones.

    The unknown G(∅), which only sets the common level of the credits, is taken to be 0.
    """
    coalitions, design = tabulated(n, most, seed)
    (full,) = surrogate(np.ones((1, n), dtype=np.bool_))
    return surrogate_credits(coalitions, surrogate(coalitions), float(full), design)


@lru_cache(maxsize=16)  # asked for often, and expensive to draw
def tabulated(n: int, most: int, seed: int = 0) -> tuple[BoolArray, str]:
    """Return the coalitions that own credits need, (m, n), read-only, and the name of their design.

    These are all 2ⁿ − 2 between the empty and the full one (``exhaustive``), or ``most`` of them.
    """
    everything = n <= LARGEST and 2**n - 2 <= most
    design = "exhaustive" if everything else "uniform"
    coalitions = make_design(design, seed).draw(n, 0, 2**n - 2 if everything else most)
    coalitions.flags.writeable = False
    return coalitions, design
