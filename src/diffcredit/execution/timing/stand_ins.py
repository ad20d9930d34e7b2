"""Random images and features, for timing how long properties take to measure."""

from collections.abc import Callable
from typing import Any

import numpy as np

from diffcredit.features import Extractor, Features, FeaturesOption, Images
from diffcredit.features.extractors import Extractors, check_images

DISTINCT = 1000  # images; more than that repeat them


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
        self._real, self._random = real, np.random.default_rng(0)

    @property
    def device(self) -> str:
        return self._real.device

    def get(self, option: FeaturesOption) -> Extractor:
        return self._real.get(option)

    def identity(self, option: FeaturesOption) -> dict[str, Any]:
        return self._real.identity(option)

    def extract(
        self, option: FeaturesOption, images: Images, on_batch: Callable[[int, int], None] | None = None
    ) -> Features:
        check_images(images)
        return random_features(self.get(option), len(images), self._random)

    def kept(self, option: FeaturesOption, images: Images, what: str) -> Features:
        return self.extract(option, images)
