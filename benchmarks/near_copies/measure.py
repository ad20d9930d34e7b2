"""How many planted copies are found, by kind of edit, and how many pairs among works that nobody copied.

    python -m benchmarks near_copies
    DIFFCREDIT_PICTURES=paintings/ python -m benchmarks near_copies

Every picture of a folder with a folder for each contributor, or of the bundled OpenMoji, is loaded at 128 px. Copies of
120 of them, edited, are then given by other contributors. Results of both places are kept side by side.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps

from benchmarks.near_copies.page import write_page
from diffcredit.contributions import Contributions, Lookalike, load_contributions, lookalikes_of, near_copies_of
from diffcredit.features.extractors import Extractors

RESULTS = Path(__file__).parent / "results.json"
FEATURES = "efficientnet_lite0"
SIDE, PLANTED = 128, 120
Picture = Image.Image


def cut(picture: Picture, share: float, left: float = 0.5) -> Picture:
    """Return the part of a picture that remains without a ``share`` of its side."""
    size, edge = SIDE * (1 - share), SIDE * share * left
    return picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=(edge, edge, edge + size, edge + size))


def recompressed(picture: Picture) -> Picture:
    file = BytesIO()
    picture.save(file, "JPEG", quality=20)
    return Image.open(file).convert("RGB")


def framed(picture: Picture) -> Picture:
    return ImageOps.expand(picture.resize((88, 88)), 20, (40, 30, 20))


def other_colours(picture: Picture) -> Picture:
    hue, saturation, value = picture.convert("HSV").split()
    turned = hue.point(lambda tone: (tone + 85) % 256)
    return Image.merge("HSV", (turned, saturation, value)).convert("RGB")


def with_a_sticker(picture: Picture) -> Picture:
    marked = picture.copy()
    ImageDraw.Draw(marked).ellipse((70, 70, 120, 120), fill=(250, 210, 0))
    return marked


EDITS: dict[str, Callable[[Picture], Picture]] = {
    "halved and enlarged": lambda it: it.resize((64, 64)).resize((SIDE, SIDE)),
    "JPEG of quality 20": recompressed,
    "mirrored": ImageOps.mirror,
    "brighter by a fifth": lambda it: ImageEnhance.Brightness(it).enhance(1.2),
    "a tenth cut off at one corner": lambda it: cut(it, 0.1, 0.0),
    "a tenth cut off, off-centre": lambda it: cut(it, 0.1, 0.3),
    "a fifth cut off, mirrored": lambda it: ImageOps.mirror(cut(it, 0.2)),
    "a fifth cut off, off-centre": lambda it: cut(it, 0.2, 0.35),
    "blurred": lambda it: it.filter(ImageFilter.GaussianBlur(3)),
    "a third cut off": lambda it: cut(it, 0.35),
    "half cut off": lambda it: cut(it, 0.5, 0.2),
    "turned by 10°": lambda it: it.rotate(10, Image.Resampling.BICUBIC, fillcolor=(255, 255, 255)),
    "turned by 90°": lambda it: it.rotate(90),
    "in grey": lambda it: it.convert("L").convert("RGB"),
    "in other colours": other_colours,
    "a negative": ImageOps.invert,
    "in a frame": framed,
    "with a sticker": with_a_sticker,
}


def planted(given: Contributions, edit: Callable[[Picture], Picture], rows: NDArray[np.int64]) -> Contributions:
    """Return ``given`` with edited copies of the images in ``rows``, each by the contributor after the one who gave
    it."""
    copies = [np.asarray(edit(Image.fromarray(given.images[row]))) for row in rows]
    return replace(
        given,
        images=np.concatenate([given.images, copies]),
        owner=np.concatenate([given.owner, (given.owner[rows] + 1) % given.n]),
        names=(*given.names, *(f"copy of {given.names[row]}" for row in rows)),
    )


def measured(given: Contributions) -> dict[str, Any]:
    """Return what is found among ``given``, and the part of each kind of copy that is."""
    extractors = Extractors()
    vectors = extractors.extract(FEATURES, given.images).vectors
    near, alike = near_copies_of(given), lookalikes_of(given, vectors)
    between = [each for each in alike if each.one_giver != each.two_giver]
    found: dict[str, Any] = {
        "images": len(given.images),
        "contributors": given.n,
        "near-copies": {"between": near.between, "own": len(near.copies) - near.between},
        "look-alikes": {"between": len(between), "own": len(alike) - len(between)},
        "clearest": [[*_sides(each), each.margin] for each in between[:5]],
        "edits": {},
    }
    rows = np.sort(np.random.default_rng(0).permutation(len(given.images))[:PLANTED])
    for name, edit in EDITS.items():
        forged = planted(given, edit, rows)
        both = np.concatenate([vectors, extractors.extract(FEATURES, forged.images[len(given.images) :]).vectors])
        pairs = {frozenset((each.name, each.original)) for each in near_copies_of(forged).copies}
        others = {frozenset((each.one, each.two)) for each in lookalikes_of(forged, both)}
        wanted = [frozenset((given.names[row], f"copy of {given.names[row]}")) for row in rows]
        by_pixels, at_all = (np.mean([pair in some for pair in wanted]) for some in (pairs, pairs | others))
        found["edits"][name] = {"pixels": float(by_pixels), "at all": float(at_all)}
        print(name, found["edits"][name], flush=True)
    return found


def _sides(each: Lookalike) -> tuple[str, str]:
    return f"{each.one_giver}/{Path(each.one).name}", f"{each.two_giver}/{Path(each.two).name}"


def main() -> None:
    place = os.environ.get("DIFFCREDIT_PICTURES")
    given = load_contributions(place, source="auto" if place else "openmoji", resolution=SIDE)
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    results[Path(place).resolve().name if place else "openmoji"] = measured(given)
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_page(results, RESULTS.with_suffix(".md"))


if __name__ == "__main__":
    main()
