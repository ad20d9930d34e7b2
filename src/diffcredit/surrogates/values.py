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

from diffcredit.artifacts import canonical_json, write_text
from diffcredit.coalitions import BoolArray, decode, encode
from diffcredit.errors import DiffcreditError
from diffcredit.progress import Progress
from diffcredit.properties.measuring import checked, needs_model
from diffcredit.surrogates.protocol import ImageSurrogate, Surrogate

SECONDS = 15.0  # between two times that values are kept

Loaded = tuple[ImageSurrogate, Sequence[Any]]
"""The prepared surrogate, and the study's fitted properties."""


class SurrogateValues:
    """G of every property in ``files`` at any coalition; each is measured once. A property that measures the model
    itself has no G."""

    def __init__(self, name: str, files: Mapping[str, Path], load: Callable[[], Loaded], progress: Progress) -> None:
        self.name, self._files, self._load, self._progress = name, files, load, progress
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
        if prop not in self._known:
            return True
        known = self._known[prop]
        return known is not None and any(text not in known for text in map(encode, coalitions))

    def game(self, prop: str) -> Surrogate:
        """G of a property that it stands in for."""

        def values(coalitions: BoolArray) -> NDArray[np.float64]:
            texts = [encode(coalition) for coalition in coalitions]
            self._fill(prop, texts)
            return np.array([(self._known[prop] or {})[text] for text in texts], dtype=np.float64)

        return values

    @cached_property
    def _loaded(self) -> Loaded:
        source, every = self._load()
        properties = [prop for prop in every if prop.name in self._files]
        for prop in properties:
            if prop.name not in self._known:
                self._known[prop.name] = None if needs_model(prop) else {}
                self._keep(prop.name)
        return source, properties

    def _fill(self, prop: str, texts: Sequence[str]) -> None:
        """Measures what is missing, every property on the same images."""
        known = self._known.get(prop)
        missing = [text for text in dict.fromkeys(texts) if known is None or text not in known]
        if not missing:
            return
        source, properties = self._loaded
        what, kept = f"measuring the surrogate {self.name}", time.monotonic()
        try:
            for done, text in enumerate(missing, start=1):
                images = source.images(decode(text))
                for each in properties:
                    values = self._known[each.name]
                    if values is not None and text not in values:
                        values[text] = self._measured(each, images)
                self._progress(what, done, len(missing))
                if time.monotonic() - kept > SECONDS:
                    self._keep_all()
                    kept = time.monotonic()
        finally:
            self._keep_all()

    def _measured(self, prop: Any, images: NDArray[np.uint8]) -> float:
        try:
            return checked(prop.name, prop.measure(images.copy()))  # a copy: what one writes must not change another's
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
