"""The real images that a set of generated images is compared with."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.contributions.images import UnreadableImage, square_pixels
from diffcredit.contributions.sources import Record
from diffcredit.contributions.sources.folders import Folders
from diffcredit.contributions.sources.npz import Npz
from diffcredit.errors import UserError, located
from diffcredit.features import Features, FeaturesOption, Images
from diffcredit.properties.base import Context

CONTRIBUTIONS = "contributions"
HELDOUT = "heldout"
MOST = 10_000
"""How many reference images are enough where each is compared with each generated one."""


def check_reference(contributions: Contributions, reference: str, least: int = 1) -> None:
    """Refuses a ``reference`` that cannot be read or has fewer than ``least`` images, without decoding any."""
    found = reference_count(contributions, reference)
    if found < least:
        raise UserError(f"reference: {found} images in {reference!r}; at least {least} are needed")


def reference_count(contributions: Contributions, reference: str) -> int:
    """How many images ``reference`` names; none is decoded."""
    return len(_found(contributions, reference))


def reference_features(context: Context, option: FeaturesOption, reference: str, most: int | None = None) -> Features:
    """What the extractor ``option`` sees in the reference images; where there are more than ``most``, in that many,
    drawn at random and always the same."""
    whose = {CONTRIBUTIONS: "the training images", HELDOUT: "the held-out images"}
    images = reference_images(context.contributions, reference, most)
    return context.extractors.kept(option, images, whose.get(reference, "the reference images"))


def reference_images(contributions: Contributions, reference: str, most: int | None = None) -> Images:
    """(n, h, w, 3) uint8 at the contributions' resolution, at most ``most`` of those that ``reference`` names:

    - ``contributions``: all training images, whoever gave them;
    - ``heldout``: the images kept out of training;
    - the path of a folder of images at any depth, or of an ``.npz`` with uint8 ``images`` (m, h, w, 3); the central
      squares, resized. A folder that is called like one of the words is named ``./heldout``.
    """
    found = _found(contributions, reference)
    rows = _drawn(len(found), most)
    if isinstance(found, np.ndarray):
        return found[rows]
    side = contributions.images.shape[1]
    return np.stack([_pixels(found[row], side, reference) for row in np.arange(len(found))[rows]])


def _found(contributions: Contributions, reference: str) -> Images | list[Record]:
    """What ``reference`` names, at least one; from a path not yet decoded, in the order of names."""
    if reference == CONTRIBUTIONS:
        return contributions.images
    if reference == HELDOUT:
        if not len(contributions.heldout):
            raise UserError(
                "reference: 'heldout', but the study keeps no images out of training; give contributions.holdout a "
                "share such as 0.1 or a folder of images"
            )
        return contributions.heldout
    path = Path(reference)
    with located("reference"):
        if reference and path.is_dir():  # an empty name would be the working directory
            records = Folders()(path, None)
        elif path.is_file() and path.suffix.lower() == ".npz":
            records = Npz()(path, None)
        else:
            raise UserError(
                f"{reference!r} is neither {CONTRIBUTIONS} nor {HELDOUT} nor the path of a folder of images or of an "
                ".npz; these are accepted"
            )
        if not records:
            raise UserError(f"no images in {reference!r}")
    return sorted(records, key=lambda record: record.name)


def _pixels(record: Record, side: int, reference: str) -> NDArray[np.uint8]:
    try:
        with record.open() as image:
            return square_pixels(image, side)
    except UnreadableImage as error:
        why = str(error)
    # on hostile files Pillow's decoders raise more than OSError: SyntaxError, struct.error, IndexError…
    except Exception as error:
        why = f"cannot be decoded ({type(error).__name__}: {error})"
    raise UserError(f"reference: {reference}: {record.name}: {why}; repair or remove it")


def _drawn(count: int, most: int | None) -> NDArray[np.int64] | slice:
    """Which of ``count`` images count, in their order: all, or ``most`` at random."""
    if most is None or count <= most:
        return slice(None)
    uniform = np.random.Generator(np.random.PCG64(0)).random(count)
    return np.sort(np.argsort(uniform, kind="stable")[:most])
