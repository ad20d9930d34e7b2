"""An extractor that needs no weights: fixed random maps of the pixels, with classes and texts."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from diffcredit.contributions import Contributions
from diffcredit.features import Features
from diffcredit.properties import Context

SIDE = 8
FAKE = "properties.fake_features:FakeFeatures"


@dataclass
class FakeFeatures:
    """x W of the pixels x in −½..½ of images of 8 × 8, and x W V for the classes' scores."""

    width: int = 16
    kinds: int = 5

    batch_size: ClassVar[int] = 7

    @property
    def dimensions(self) -> int:
        return self.width

    @property
    def classes(self) -> int:
        return self.kinds

    @property
    def labels(self) -> list[str]:
        return ["red fox", "crane", "tabby cat", "crane", "sports car", *map(str, range(5, self.kinds))][: self.kinds]

    def load(self, device: str) -> None:
        rng = np.random.default_rng(3)
        self._map = rng.normal(size=(SIDE * SIDE * 3, self.width))
        self._scores = rng.normal(size=(self.width, self.kinds))

    def identity(self) -> dict[str, Any]:
        return {"weights": "", "resize": "none", "width": self.width, "kinds": self.kinds}

    def extract(self, images: np.ndarray) -> Features:
        vectors = (images.reshape(len(images), -1) / 255 - 0.5) @ self._map
        return Features(vectors.astype(np.float32), (vectors @ self._scores).astype(np.float32))

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([text_vector(text, self.width) for text in texts], np.float32)


def text_vector(text: str, width: int = 16) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    return np.random.default_rng(seed).normal(size=width)


def pictures(count: int, seed: int = 0, side: int = SIDE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def context(
    generated: np.ndarray | None = None, training: np.ndarray | None = None, prompts: tuple[str, ...] | None = None
) -> Context:
    """With ``training`` images that two contributors gave in turns."""
    generated = pictures(6) if generated is None else generated
    training = pictures(4, seed=1) if training is None else training
    owner, names = np.arange(len(training)) % 2, tuple(map(str, range(len(training))))
    contributions = Contributions(training, owner, ("a", "b"), names, training[:0])
    return Context(generated, contributions, prompts=prompts)


def fitted(prop: Any, given: Context | None = None) -> Any:
    """``prop`` with what it learns from the context."""
    prop.restore(prop.fit(given or context()))
    return prop
