"""How far generated images are from copies of training images."""

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
from diffcredit.features.extractors import label_of
from diffcredit.properties.base import Context, State
from diffcredit.properties.bootstrap import mean_error

BLOCK = 1 << 22  # numbers of float64 at a time: 32 MiB
MOST_KNOWN = 200_000  # images whose neighbours are remembered


@dataclass
class NearestDistance:
    """The mean over generated images x of the distance min_y ‖x − y‖/√d to the nearest training image y: the root mean
    square difference of their d numbers, for ``pixels`` on the scale 0 to 1.

    The training images are those of all contributors, whichever coalition's model is measured.
    """

    features: FeaturesOption = "pixels"

    name = "nearest_distance"
    higher_is_better = True
    unit = "root mean square difference"
    range = (0.0, inf)
    explanation = (
        "How different the generated images are from the most similar training image. 0 means copies; but noise is far "
        "from every image too, so read it along with the quality of the images."
    )
    bias = "None, as it is a mean over the images."

    @property
    def title(self) -> str:
        return f"Distance to the nearest training image ({label_of(self.features)})"

    def fit(self, context: Context) -> State:
        return {"training": _training_vectors(context, self.features)}

    def restore(self, state: State) -> None:
        self._training: NDArray[np.float32] = state["training"]

    def measure_features(self, features: Features) -> float:
        return float(self._distances(features).mean())

    def standard_error(self, features: Features) -> float:
        return mean_error(self._distances(features))

    def _distances(self, features: Features) -> NDArray[np.float64]:
        nearest = _two_nearest(features.vectors, self._training)[:, 0]
        return nearest / np.sqrt(features.vectors.shape[1])


@dataclass
class MemorisedShare:
    """The share of generated images whose nearest training image is nearer than ``ratio`` times the second nearest,
    by which Yoon et al. (2023) and Gu et al. (2023) call an image memorised.

    Training images with the same pixels, such as copies by several contributors, count once: each would be the
    other's second nearest. Almost equal ones (another compression, a shifted crop) do hide what is copied from them.
    """

    features: FeaturesOption = "pixels"
    ratio: Annotated[float, Gt(0), Le(1)] = 1 / 3

    name = "memorised_share"
    higher_is_better = False
    unit = "share of the images"
    range = (0.0, 1.0)
    explanation = (
        "How many of the generated images are so close to one training image, compared with all others, that they pass "
        "for copies of it. 0 means none."
    )
    bias = "None, as it is a mean over the images."

    @property
    def title(self) -> str:
        return f"Memorised images ({label_of(self.features)})"

    def check(self, contributions: Contributions, images: int) -> None:
        self._check_training(len(contributions.images))

    def fit(self, context: Context) -> State:
        training = _training_vectors(context, self.features)
        self._check_training(len(training))
        return {"training": training}

    def _check_training(self, distinct: int) -> None:
        if distinct < 2:
            raise UserError(f"memorised_share: {distinct} distinct training images; at least 2 are needed")

    def restore(self, state: State) -> None:
        self._training: NDArray[np.float32] = state["training"]

    def measure_features(self, features: Features) -> float:
        return float(self._memorised(features).mean())

    def standard_error(self, features: Features) -> float:
        return mean_error(self._memorised(features))

    def _memorised(self, features: Features) -> NDArray[np.float64]:
        """1 of each image that is memorised, 0 of others, (m,)."""
        nearest, second = _two_nearest(features.vectors, self._training).T
        return (nearest < self.ratio * second).astype(np.float64)


def distinct_images(images: Images) -> NDArray[np.int64]:
    """The indices of the images that no earlier one equals, ascending."""
    first: dict[bytes, int] = {}
    for index, image in enumerate(images):
        first.setdefault(hashlib.sha256(image.tobytes()).digest(), index)
    return np.array(list(first.values()), np.int64)


def _training_vectors(context: Context, option: FeaturesOption) -> NDArray[np.float32]:
    """The features of the distinct training images, (n, d)."""
    images = context.contributions.images
    return context.extractors.kept(option, images, "the training images").vectors[distinct_images(images)]


_known: dict[tuple[bytes, bytes], NDArray[np.float64]] = {}


def _two_nearest(vectors: NDArray[np.float32], training: NDArray[np.float32]) -> NDArray[np.float64]:
    """(m, 2) as :func:`nearest_distances`, or (m, 1) where there is one training image.

    The search takes long, and images come again: for a value and its error, for both properties, in the pools of many
    coalitions. So what was found is remembered.
    """
    among = hashlib.sha256(training.tobytes()).digest()
    keys = [(among, hashlib.sha256(vector.tobytes()).digest()) for vector in vectors]
    found = {key: distances for key in keys if (distances := _known.get(key)) is not None}
    missing = list({key: row for row, key in enumerate(keys) if key not in found}.values())
    if missing:
        nearest = nearest_distances(vectors[missing], training, min(2, len(training)))
        new = {keys[row]: distances for row, distances in zip(missing, nearest, strict=True)}
        if len(_known) + len(new) > MOST_KNOWN:
            _known.clear()
        _known.update(new)
        found |= new
    return np.array([found[key] for key in keys])


def nearest_distances(vectors: NDArray[np.float32], training: NDArray[np.float32], count: int) -> NDArray[np.float64]:
    """(m, count): the Euclidean distances of ``vectors`` (m, d) to the ``count`` nearest of ``training`` (n, d),
    ascending."""
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
