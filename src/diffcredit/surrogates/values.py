"""The values of one surrogate at the coalitions asked so far, kept in a file for each property.

Reading what is kept needs neither the surrogate nor the properties; they are loaded for what is missing.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.coalitions import decode, encode
from diffcredit.errors import DiffcreditError
from diffcredit.features import Features
from diffcredit.features.extractors import Extractors
from diffcredit.properties.measuring import Observation, copied, measured_value, needs_features, needs_model
from diffcredit.surrogates.base import ImageSurrogate, Surrogate
from diffcredit.util.arrays import BoolArray
from diffcredit.util.artifacts import canonical_json, fingerprint, write_text
from diffcredit.util.progress import Progress

SECONDS = 15.0  # between two times that values are kept

Loaded = tuple[ImageSurrogate, Sequence[Any], Extractors]
"""The prepared surrogate, the study's fitted properties, and what they see images through."""


class SurrogateValues:
    """G of every property in ``files`` at any coalition; each is measured once. A property that measures the model
    itself has no G, nor has one that needs images in the order of their seeds where the surrogate has another."""

    def __init__(self, name: str, files: Mapping[str, Path], load: Callable[[], Loaded], progress: Progress) -> None:
        self.name, self._files, self._load, self._progress = name, files, load, progress
        self._library: dict[str, Features] = {}
        self._known: dict[str, dict[str, float] | None] = {
            prop: json.loads(file.read_text(encoding="utf-8"))["values"]
            for prop, file in files.items()
            if file.exists()
        }

    def stands_in_for(self, prop: str) -> bool:
        """Whether there is a G of this property."""
        if prop in self._files and prop not in self._known:
            _ = self._loaded
        return self._known.get(prop) is not None

    def lacks(self, prop: str, coalitions: BoolArray) -> bool:
        """Whether a value at these coalitions is still to be measured."""
        return prop not in self._known or any(self._lacks(prop, text) for text in map(encode, coalitions))

    def _lacks(self, prop: str, text: str) -> bool:
        known = self._known[prop]
        return known is not None and text not in known

    def game(self, prop: str) -> Surrogate:
        """G of a property that it stands in for."""

        def values(coalitions: BoolArray) -> NDArray[np.float64]:
            texts = [encode(coalition) for coalition in coalitions]
            self._fill(prop, texts)
            return np.array([(self._known[prop] or {})[text] for text in texts], dtype=np.float64)

        return values

    @cached_property
    def _loaded(self) -> Loaded:
        source, every, extractors = self._load()
        properties = [prop for prop in every if prop.name in self._files]
        for prop in properties:
            if prop.name not in self._known:
                disordered = getattr(prop, "ordered", False) and not getattr(source, "keeps_seeds", False)
                self._known[prop.name] = None if needs_model(prop) or disordered else {}
                self._keep(prop.name)
        return source, properties, extractors

    def _fill(self, prop: str, texts: Sequence[str]) -> None:
        """Measures what is missing, every property on the same images."""
        known = self._known.get(prop)
        missing = [text for text in dict.fromkeys(texts) if known is None or text not in known]
        if not missing:
            return
        source, properties, extractors = self._loaded
        what, kept = f"measuring the surrogate {self.name}", time.monotonic()
        try:
            for done, text in enumerate(missing, start=1):
                lacking = [prop for prop in properties if self._lacks(prop.name, text)]
                observation = self._observation(source, extractors, decode(text), lacking)
                for each in lacking:
                    values = self._known[each.name]
                    assert values is not None  # or it would lack nothing
                    values[text] = self._measured(each, observation)
                self._progress(what, done, len(missing))
                if time.monotonic() - kept > SECONDS:
                    self._keep_all()
                    kept = time.monotonic()
        finally:
            self._keep_all()

    def _observation(
        self, source: Any, extractors: Extractors, coalition: BoolArray, properties: Sequence[Any]
    ) -> Observation:
        """A coalition's images with their features, which those of a library have already."""
        observation = Observation(extractors, source.images(coalition))
        if hasattr(source, "library"):
            rows = source.rows(coalition)
            for option in (prop.features for prop in properties if needs_features(prop)):
                key = fingerprint(extractors.identity(option))
                if key not in self._library:
                    self._library[key] = extractors.kept(option, source.library, f"the surrogate {self.name}'s images")
                observation.features[key] = self._library[key].select(rows)
        return observation

    def _measured(self, prop: Any, observation: Observation) -> float:
        try:
            observed = observation.seen_by(prop.features) if needs_features(prop) else observation.seen()
            return measured_value(prop, copied(observed))  # a copy: what one writes must not change another's
        except Exception as error:  # a user's code may raise anything
            raise DiffcreditError(
                f"surrogate {self.name!r}: property {prop.name!r} cannot be measured on its images "
                f"({type(error).__name__}: {error})"
            ) from error

    def _keep_all(self) -> None:
        for prop in self._known:
            self._keep(prop)

    def _keep(self, prop: str) -> None:
        content = {"surrogate": self.name, "property": prop, "values": self._known[prop]}
        write_text(self._files[prop], canonical_json(content))
