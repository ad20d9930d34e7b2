"""Pictures with shapes, copies of them, and contributions of both."""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from diffcredit.contributions import HOUSE, Contributions

Picture = NDArray[np.uint8]
SIDE = 64


def picture(seed: int) -> Picture:
    """A picture of coloured blobs, unlike all others."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (7, 7, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def resized(image: Picture) -> Picture:
    return np.asarray(Image.fromarray(image).resize((SIDE // 2, SIDE // 2)).resize((SIDE, SIDE)))


def mirrored(image: Picture) -> Picture:
    return np.asarray(ImageOps.mirror(Image.fromarray(image)))


def compressed(image: Picture) -> Picture:
    file = BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=30)
    return np.asarray(Image.open(file).convert("RGB"))


def cropped(image: Picture, share: float = 0.1) -> Picture:
    edge = SIDE * share / 2
    box = (edge, edge, SIDE - edge, SIDE - edge)
    return np.asarray(Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=box))


def brighter(image: Picture) -> Picture:
    return np.clip(image * 1.1 + 5, 0, 255).astype(np.uint8)


CHANGES: tuple[Callable[[Picture], Picture], ...] = (resized, mirrored, compressed, cropped, brighter)


def contributions(
    given: Mapping[str, Sequence[Picture]], house: Sequence[Picture] = (), heldout: Sequence[Picture] = ()
) -> Contributions:
    """Everybody's pictures, called ``Ada/0.png`` and so on, in the order of these names."""
    people = tuple(sorted(given))
    rows = sorted(
        [(f"{who}/{i}.png", people.index(who), image) for who in given for i, image in enumerate(given[who])]
        + [(f"house/{i}.png", HOUSE, image) for i, image in enumerate(house)],
        key=lambda row: row[0],
    )
    return Contributions(
        images=np.array([image for _, _, image in rows]),
        owner=np.array([owner for _, owner, _ in rows]),
        contributors=people,
        names=tuple(name for name, _, _ in rows),
        heldout=np.array([*heldout], dtype=np.uint8).reshape(-1, SIDE, SIDE, 3),
        given=tuple(len(given[who]) for who in people),
        withheld=(0,) * len(people),
        heldout_names=tuple(f"heldout/{i}.png" for i in range(len(heldout))),
    )
