"""Writes the planted-truth studies: images of contributors with known relations, and a study file for each.

    python -m studies.planted.make results/planted/0 --seed 0

The output folder gets twins/, degraded/ and shared-labels/, each with images/, heldout/ and study.yaml. images/ has a
folder per contributor, or a metadata.csv with contributors and labels. The images are the bundled emoji at 16 pixels,
CC BY-SA 4.0 (see the ATTRIBUTION.md beside them). The seed deals the emoji to the contributors of `degraded` and
`shared-labels`, and is that of all that is random in the studies.
"""

import argparse
import csv
import io
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from diffcredit.contributions import Contributions, load_contributions
from diffcredit.contributions.sources.folders import BUNDLED, ImageFolder
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

SHARED = "shared-labels"
LABELS = {"flags": "flags", "smileys-emotion": "smileys"}
"""The groups of emoji that are the labels of `shared-labels`, with what contributors are called after."""
GOOD, POOR = ("good a", "good b"), "poor"
SHARE = 16  # images of each contributor of `shared-labels`
BLUR = 1.0  # pixels, the standard deviation


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


def shared_labels(emoji: Contributions, seed: int) -> dict[str, Images]:
    """(16, 16, 16, 3) uint8 of each contributor: for each label the emoji of its group, dealt at random to two who
    give them as they are and one who gives :func:`photocopies` of them."""
    random = np.random.default_rng(derive_seed(seed, "planted", "shared labels"))
    groups = np.array(emoji.captions)
    given = {}
    for group, called in LABELS.items():
        dealt = iter(random.permutation(np.flatnonzero(groups == group)))
        for kind in (*GOOD, POOR):
            own = emoji.images[[next(dealt) for _ in range(SHARE)]]
            given[f"{called} {kind}"] = photocopies(own) if kind == POOR else own
    return given


def photocopies(images: Images) -> Images:
    """Bad copies of images: without colours, and blurred."""
    grey = (Image.fromarray(pixels).convert("L").filter(ImageFilter.GaussianBlur(BLUR)) for pixels in images)
    return np.stack([np.asarray(each.convert("RGB")) for each in grey])


def label_of(name: str) -> str:
    """The label of a contributor of `shared-labels`."""
    return next(group for group, called in LABELS.items() if name.split()[0] == called)


def write_images(folder: Path, given: Mapping[str, Images]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, images in given.items():
        (folder / name).mkdir(parents=True)
        for index, pixels in enumerate(images):
            Image.fromarray(pixels).save(folder / name / f"{index:02d}.png")


def write_labelled(folder: Path, given: Mapping[str, tuple[str, Images]]) -> None:
    """An `imagefolder` of each contributor's label and images."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("file_name", "contributor", "text"))
    for name, (label, images) in given.items():
        for index, pixels in enumerate(images):
            file = f"{name} {index:02d}.png"
            Image.fromarray(pixels).save(folder / file)
            rows.writerow((file, name, label))
    write_text(folder / "metadata.csv", text.getvalue())


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
    trained, kept_out = grouped_emoji("images"), grouped_emoji("heldout")
    given = shared_labels(trained, seed)
    write_labelled(folder / SHARED / "images", {name: (label_of(name), images) for name, images in given.items()})
    groups = np.array(kept_out.captions)
    clean = {group: (group, kept_out.images[groups == group]) for group in LABELS}
    write_labelled(folder / SHARED / "heldout", clean)
    write_study(folder / SHARED, SHARED, seed)


def grouped_emoji(part: str) -> Contributions:
    """The bundled emoji of a part, whose captions are the groups of emoji that they belong to."""
    return load_contributions(BUNDLED / part, source=ImageFolder(caption="group"), resolution=RESOLUTION)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    make(arguments.output, arguments.seed)


if __name__ == "__main__":
    main()
