"""Writes the planted-truth studies: images of contributors with known relations, and a study file for each.

    python -m studies.planted.make results/planted/0 --seed 0

The output folder gets twins/ and degraded/, each with images/ (a folder per contributor), heldout/ and study.yaml. The
images are the bundled emoji at 16 pixels, CC BY-SA 4.0 (see the ATTRIBUTION.md beside them). The seed deals the emoji
to the contributors of `degraded`, and is that of all that is random in the studies.
"""

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray
from PIL import Image

from diffcredit.contributions import Contributions, load_contributions
from diffcredit.util.artifacts import write_text
from diffcredit.util.consent import trust
from diffcredit.util.seeds import derive_seed

Images = NDArray[np.uint8]

HERE = Path(__file__).parent
RESOLUTION = 16

TWINS = ("flags", "flags twin")
WHOLE, HALF = "smileys", "smileys half"
FILTERED = "filtered"
DESIGNERS = {
    "flags": "Ferdinand Sorg",
    "smileys": "Emily Jäger",
    "mammals": "Sofie Ascherl",
    FILTERED: "Miriam Vollmeier",
}
"""Whose emoji the contributors of `twins` give."""

DEGREES = 4
"""Degree d of 0 to 3 is d/4 noise; pure noise is degree 4."""
EACH = 3
"""Contributors of each degree below."""
NOISE = "noise"


def twins(emoji: Contributions) -> dict[str, Images]:
    """(m, 16, 16, 3) uint8 of each contributor: a copy, a half and a contributor to be filtered out among them."""
    given = {name: emoji.images[emoji.of(np.array(emoji.contributors) == who)] for name, who in DESIGNERS.items()}
    return given | {TWINS[1]: given[TWINS[0]], HALF: given[WHOLE][::2]}


def degraded(emoji: Contributions, seed: int) -> dict[str, Images]:
    """(m, 16, 16, 3) uint8 of each contributor, as many of each and of the same designers: (1 − d/4)·emoji + d/4·noise
    at degree d, with uniform noise of its own in every pixel."""
    random = np.random.default_rng(derive_seed(seed, "planted", "degraded"))
    shuffled = random.permutation(len(emoji.images))
    by_designer = shuffled[np.argsort(emoji.owner[shuffled], kind="stable")]
    names = [f"degree {degree} {letter}" for letter in "abc"[:EACH] for degree in range(DEGREES)]
    count = len(by_designer) // len(names)
    shape = (count, *emoji.images.shape[1:])
    given = {}
    for place, name in enumerate(names):
        share = degree_of(name) / DEGREES
        clean, noise = emoji.images[by_designer[place :: len(names)][:count]], random.integers(0, 256, shape)
        given[name] = np.rint((1 - share) * clean + share * noise).astype(np.uint8)
    return given | {NOISE: random.integers(0, 256, shape, dtype=np.uint8)}


def degree_of(name: str) -> int:
    """The degree of degradation, 0 to 4, of a contributor of `degraded`."""
    return DEGREES if name == NOISE else int(name.split()[1])


def write_images(folder: Path, given: Mapping[str, Images]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, images in given.items():
        (folder / name).mkdir(parents=True)
        for index, pixels in enumerate(images):
            Image.fromarray(pixels).save(folder / name / f"{index:02d}.png")


def write_study(folder: Path, name: str, seed: int) -> None:
    """``study.yaml``: the one beside this file, with ``seed`` in every place, and the plug-in it names, which is ours
    and may run."""
    study = yaml.safe_load((HERE / f"{name}.yaml").read_text(encoding="utf-8"))
    study["seed"] = study["design"]["seed"] = seed
    study["sampling"]["seed"] = seed * study["sampling"]["images"]  # no initial noise in two studies
    write_text(folder / "study.yaml", yaml.safe_dump(study, sort_keys=False))
    shutil.copyfile(HERE / "filtered.py", folder / "filtered.py")
    trust([folder / "filtered.py"])


def make(folder: Path, seed: int) -> None:
    emoji = load_contributions(source="openmoji", resolution=RESOLUTION)
    for name, given in {"twins": twins(emoji), "degraded": degraded(emoji, seed)}.items():
        write_images(folder / name / "images", given)
        write_images(folder / name / "heldout", {"nobody": emoji.heldout})
        write_study(folder / name, name, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    make(arguments.output, arguments.seed)


if __name__ == "__main__":
    main()
