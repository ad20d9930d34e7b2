"""Memorisation: how near generated images are to training images."""

import hashlib
from dataclasses import dataclass
from math import inf
from typing import Annotated

import numpy as np
from annotated_types import Gt, Le
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.features import Features, FeaturesOption, Images
from diffcredit.properties.base import Context, State
from diffcredit.properties.kinds import MeanProperty

BLOCK = 1 << 22  # numbers of float64 at a time: 32 MiB
MOST_CACHED = 200_000  # images whose nearest distances are cached


class _NearestTraining(MeanProperty):
    """A mean over generated images of something about their nearest training images.

    The training images are those of all contributors. Distances are cached, because they take long to find and images
    come again: for a value and its error, and in the pools of many coalitions.
    """

    whole_training = True  # a copy is a copy, whatever its caption

    def fit(self, context: Context) -> State:
        images = context.contributions.images
        vectors = context.extractors.kept(self.features, images, "the training images").vectors
        return {"training": vectors[distinct_images(images)]}

    def restore(self, state: State) -> None:
        self._training: NDArray[np.float32] = state["training"]
        self._cached: dict[bytes, NDArray[np.float64]] = {}

    def _nearest(self, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return (m, 2) as :func:`nearest_distances`, or (m, 1) where there is one training image."""
        keys = [hashlib.sha256(vector.tobytes()).digest() for vector in vectors]
        if len(self._cached) > MOST_CACHED:
            self._cached.clear()
        missing = {key: row for row, key in enumerate(keys) if key not in self._cached}
        if missing:
            new = vectors[list(missing.values())]
            nearest = nearest_distances(new, self._training, min(2, len(self._training)))
            self._cached |= zip(missing, nearest, strict=True)
        return np.array([self._cached[key] for key in keys])


@dataclass
class NearestDistance(_NearestTraining):
    """The mean over generated images x of the distance min_y ‖x − y‖/√d to the nearest training image y."""

    features: FeaturesOption = "pixels"

    name = "nearest_distance"
    heading = "Distance to the nearest training image"
    unit = "root mean square difference"
    differences = (
        "pictures would be {} nearer to those trained on",
        "pictures would be {} further from those trained on",
    )
    range = (0.0, inf)
    explanation = (
        "How different the generated images are from the most similar training image. 0 means copies; but noise is far "
        "from every image too, so read it along with the quality of the images."
    )

    def _each(self, features: Features) -> NDArray[np.float64]:
        return self._nearest(features.vectors)[:, 0] / np.sqrt(features.vectors.shape[1])


@dataclass
class MemorisedShare(_NearestTraining):
    """The share of generated images that are memorised (Yoon et al. 2023, Gu et al. 2023).

    An image is memorised if its nearest training image is nearer than ``ratio`` times the second nearest. Training
    images with the same pixels, such as copies by several contributors, count once: each would be the other's second
    nearest. Pitfall: nearly equal training images (another compression, a shifted crop) hide what is copied from them.
    """

    features: FeaturesOption = "pixels"
    ratio: Annotated[float, Gt(0), Le(1)] = 1 / 3

    name = "memorised_share"
    heading = "Memorised images"
    higher_is_better = False
    unit = "share of the images"
    differences = (
        "{} fewer pictures would be copies of those trained on",
        "{} more pictures would be copies of those trained on",
    )
    range = (0.0, 1.0)
    explanation = (
        "How many of the generated images are so close to one training image, compared with all others, that they pass "
        "for copies of it. 0 means none."
    )

    def check(self, contributions: Contributions, images: int) -> None:
        distinct = len(distinct_images(contributions.images))
        if distinct < 2:
            raise UserError(f"memorised_share: {distinct} distinct training images; at least 2 are needed")

    def _each(self, features: Features) -> NDArray[np.float64]:
        nearest, second = self._nearest(features.vectors).T
        return (nearest < self.ratio * second).astype(np.float64)


def distinct_images(images: Images) -> NDArray[np.int64]:
    """Return the indices of the images that equal no earlier one, ascending."""
    first: dict[bytes, int] = {}
    for index, image in enumerate(images):
        first.setdefault(hashlib.sha256(image.tobytes()).digest(), index)
    return np.array(list(first.values()), np.int64)


def nearest_distances(vectors: NDArray[np.float32], training: NDArray[np.float32], count: int) -> NDArray[np.float64]:
    """Return the distances of ``vectors`` (m, d) to the ``count`` nearest of ``training`` (n, d), sorted (m, count)."""
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(training)
    found = search.kneighbors(vectors, return_distance=False)
    # the search takes ‖x‖² − 2x·y + ‖y‖², which for a copy leaves rounding errors and not 0: differences do not
    rows = max(1, BLOCK // (count * vectors.shape[1]))
    distances = np.empty(found.shape)
    for start in range(0, len(vectors), rows):
        here = slice(start, start + rows)
        gaps = vectors[here, None].astype(np.float64) - training[found[here]]
        distances[here] = np.sqrt(np.square(gaps).sum(axis=2))
    return np.sort(distances, axis=1)
