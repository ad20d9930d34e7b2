"""Kinds of property that several of ours are, their reference images (the real ones that generated ones are compared
with), and their standard errors over fresh sets of generated images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.contributions.loading import decode
from diffcredit.contributions.sources import Record
from diffcredit.contributions.sources.folders import Folders
from diffcredit.contributions.sources.npz import Npz
from diffcredit.errors import UserError, located
from diffcredit.features import Features, FeaturesOption, Images
from diffcredit.features.extractors import label_of
from diffcredit.properties.base import Context, Property

RESAMPLES = 200  # the relative error of a standard error is then 5 %
GROUPS = 20
SPLITS = 32  # into halves: the relative error of a standard error is then 13 %
NO_BIAS = "None, as it is a mean over the images."
CONTRIBUTIONS = "contributions"
HELDOUT = "heldout"
NO_HELDOUT = "the study keeps no images out of training; give contributions.holdout a share or a folder of images"
MOST = 10_000  # reference images where each is compared with each generated one


class FeatureProperty(Property):
    """A property of features. Its title is its ``heading`` with the extractor's name."""

    heading = ""

    @property
    def title(self) -> str:
        return f"{self.heading} ({label_of(self.features)})"


class MeanProperty(FeatureProperty):
    """The mean over images of a number that each of them has."""

    bias = NO_BIAS

    def _each(self, features: Features) -> NDArray[np.float64]:
        """Return the number of each image, (m,)."""
        raise NotImplementedError

    def measure_features(self, features: Features) -> float:
        return float(self._each(features).mean())

    def standard_error(self, features: Features) -> float:
        return mean_error(self._each(features))


class PercentileProperty(Property):
    """The mean of :meth:`of_each` over images or, unless it is None, a ``percentile``, linearly interpolated."""

    percentile: float | None

    @property
    def bias(self) -> str:
        if self.percentile is None:
            return NO_BIAS
        return "Slight: with few images a high percentile comes out a little too low, a low one a little too high."

    def _summary(self, observed: Any) -> float:
        values = self.of_each(observed)
        return float(values.mean() if self.percentile is None else np.percentile(values, self.percentile))

    def standard_error(self, observed: Any) -> float:
        """Estimate it by the bootstrap."""
        values = self.of_each(observed)
        if self.percentile is None:
            return mean_error(values)
        return float(np.percentile(values[resamples(len(values))], self.percentile, axis=1).std())


@dataclass
class ReferenceProperty(FeatureProperty):
    """A property that compares generated images with ``reference`` images, which :func:`reference_images` explains."""

    features: FeaturesOption = "efficientnet_lite0"
    reference: str = CONTRIBUTIONS

    least_reference = 1  # images

    def check(self, contributions: Contributions, images: int) -> None:
        """Refuse a reference that cannot be read or has too few images; none is decoded."""
        found = len(named_images(contributions, self.reference))
        if found < self.least_reference:
            needed = f"at least {self.least_reference} are needed"
            raise UserError(f"reference: {found} images in {self.reference!r}; {needed}")

    def reference_vectors(self, context: Context, most: int | None = MOST) -> NDArray[np.float32]:
        """Extract features of the reference images or, if there are more than ``most``, of a fixed random sample."""
        self.check(context.contributions, len(context.generated))
        whose = {CONTRIBUTIONS: "the training images", HELDOUT: "the held-out images"}
        images = reference_images(context.contributions, self.reference, most)
        return context.extractors.kept(self.features, images, whose.get(self.reference, "the reference images")).vectors


def reference_images(contributions: Contributions, reference: str, most: int | None = None) -> Images:
    """Return at most ``most`` reference images, (n, h, w, 3) uint8 at the contributions' resolution.

    ``reference`` is one of

    - ``contributions``: all training images;
    - ``heldout``: the images kept out of training;
    - the path of a folder of images at any depth, or of an ``.npz`` with uint8 ``images`` (m, h, w, 3); their central
      squares are resized. For a folder with the name of one of these words write ``./heldout``.
    """
    found = named_images(contributions, reference)
    if most is not None and len(found) > most:
        uniform = np.random.Generator(np.random.PCG64(0)).random(len(found))
        rows = np.sort(np.argsort(uniform, kind="stable")[:most])
        found = found[rows] if isinstance(found, np.ndarray) else [found[row] for row in rows]
    if isinstance(found, np.ndarray):
        return found
    return decode(found, contributions.images.shape[1], f"reference: {reference}")[1]


def named_images(contributions: Contributions, reference: str) -> Images | list[Record]:
    """Return the images that ``reference`` names; from a path undecoded, in the order of names."""
    if reference == CONTRIBUTIONS:
        return contributions.images
    if reference == HELDOUT:
        if not len(contributions.heldout):
            raise UserError(f"reference: 'heldout', but {NO_HELDOUT}")
        return contributions.heldout
    path = Path(reference)
    with located("reference"):
        if reference and path.is_dir():  # an empty name would be the working directory
            records = Folders()(path, None)
        elif path.is_file() and path.suffix.lower() == ".npz":
            records = Npz()(path, None)
        else:
            accepted = f"{CONTRIBUTIONS} nor {HELDOUT} nor the path of a folder of images or of an .npz"
            raise UserError(f"{reference!r} is neither {accepted}; these are accepted")
        if not records:
            raise UserError(f"no images in {reference!r}")
    return sorted(records, key=lambda record: record.name)


def resamples(images: int) -> NDArray[np.int64]:
    """Draw 200 resamples with replacement, (200, images) indices; the same on every machine."""
    uniform = np.random.Generator(np.random.PCG64(0)).random((RESAMPLES, images))
    return (uniform * images).astype(np.int64)


def resampled_counts(labels: NDArray[np.int64], kinds: int) -> NDArray[np.int64]:
    """Count each label in each resample, (200, kinds); ``labels`` (m,) of the images are in 0..kinds−1."""
    drawn = labels[resamples(len(labels))]
    numbered = drawn + kinds * np.arange(len(drawn))[:, None]  # each resample has labels of its own
    return np.bincount(numbered.ravel(), minlength=kinds * len(drawn)).reshape(len(drawn), kinds)


def mean_error(values: NDArray[np.float64]) -> float:
    """Return the standard error of the mean of values (m,) by the bootstrap, in closed form σ/√m."""
    return float(values.std() / np.sqrt(len(values)))


def groups(images: int) -> NDArray[np.int64]:
    """Return each image's group for the jackknife, (images,): 20 groups or, below 40 images, groups of 2 or 3."""
    # images of successive seeds are in different groups, so that prompts that come in turn are spread over all
    return np.arange(images) % max(2, min(GROUPS, images // 2))


def jackknife_error(left_out: NDArray[np.float64]) -> float:
    """Return √((g − 1)/g Σ (θ_(j) − θ̄)²) of the values θ_(j), (g,), without each of g groups (Efron and Stein 1981)."""
    return float(np.sqrt((len(left_out) - 1) * left_out.var()))


def halves(images: int) -> NDArray[np.bool_]:
    """Draw 32 random splits of the images into halves, (32, images); the same on every machine."""
    uniform = np.random.Generator(np.random.PCG64(0)).random((SPLITS, images))
    return uniform.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable") < images // 2


def halves_error(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """Return the standard error of the share of n reference images that are covered.

    ``one`` and ``other``, (s, n) each, say which are covered by the first and the second half of the images in each of
    s splits. Two halves are independent sets, so that the mean of (share − share')²/2 is the variance V for half as
    many images. V is the sum of D = Σ p (1 − p)/n², of each reference image by itself, which does not fall with the
    number of images, and of covariances, which fall as one over that number. For all images: D + (V − D)/2.
    """
    variance = np.square(one.mean(axis=1) - other.mean(axis=1)).mean() / 2
    own = (one != other).mean() / 2 / one.shape[1]
    return float(np.sqrt((variance + own) / 2))
