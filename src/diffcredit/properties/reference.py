"""Reference images: the real images that generated ones are compared with."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.contributions.loading import decode
from diffcredit.contributions.sources import Record
from diffcredit.contributions.sources.folders import Folders
from diffcredit.contributions.sources.npz import Npz
from diffcredit.errors import UserError, located
from diffcredit.features import FeaturesOption, Images
from diffcredit.properties.base import Context
from diffcredit.properties.kinds import FeatureProperty

CONTRIBUTIONS = "contributions"
HELDOUT = "heldout"
NO_HELDOUT = "the study keeps no images out of training; give contributions.holdout a share or a folder of images"
MOST = 10_000
"""The most reference images where each is compared with each generated one."""


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
