"""Makes the bundled OpenMoji subset from all of OpenMoji rasterised to 64 pixels on white.

    python studies/make_openmoji_subset.py openmoji_64.npz src/diffcredit/contributions/openmoji

The .npz holds ``images`` (m, 64, 64, 3) uint8, and m texts each in ``author``, ``hexcode`` and ``group``. The
output folder gets images/, heldout/ and house/ (PNG files, each with a metadata.csv) and ATTRIBUTION.md; its
LICENSE.txt stays.
"""

import argparse
import csv
import io
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diffcredit.util.artifacts import atomic_file, write_text
from diffcredit.util.seeds import derive_seed

# twelve designers with coherent subjects, from nearly monochrome (clocks) to colourful (smileys, flags);
# two of them draw the same subject, so that the game has contributors who can stand in for each other
DESIGNERS = {
    "Crystal Moon": "letter and number squares",
    "Emily Jäger": "smileys and cat faces",
    "Ferdinand Sorg": "flags",
    "Julian Grüneberg": "hands and medals",
    "Laura Humpfer": "hearts, bubbles and drinks",
    "Lisa Thiel": "people and their professions",
    "Mariella Steeb": "smileys and creatures",
    "Martin Wehl": "landscapes and buildings",
    "Miriam Vollmeier": "food",
    "Rana Cakir": "clocks and sound",
    "Sina Schulz": "music, film and office objects",
    "Sofie Ascherl": "mammals",
}
HELD_OUT = 8
TRAINING = 48  # at most, a designer
HOUSE = 36  # house images, by designers who are none of the twelve
HOUSE_EACH = 2  # at most, a designer
ALIKE = 9.0  # root mean square difference, of 255, below which two emoji count as one
SEED = 0

SKIN_TONES = {"1F3FB", "1F3FC", "1F3FD", "1F3FE", "1F3FF"}
JOINERS = {"200D", "FE0F"}
GENDERS = {"2640", "2642"}
PEOPLE = {"1F468", "1F469", "1F9D1"}  # man, woman, person


def family(hexcode: str) -> str:
    """What an emoji shows whatever the person's gender: a family is trained on or held out as a whole."""
    codes = [code for code in hexcode.split("-") if code not in JOINERS | GENDERS]
    return "-".join("person" if code in PEOPLE and len(codes) > 1 else code for code in codes)


def distinct(images: NDArray[np.uint8], candidates: list[int]) -> list[int]:
    """The candidates without those that look like an earlier one (several countries share a flag)."""
    kept: list[int] = []
    for index in candidates:
        difference = images[kept].astype(np.float32) - images[index]
        if not kept or np.sqrt((difference**2).mean(axis=(1, 2, 3))).min() >= ALIKE:
            kept.append(index)
    return kept


def split(hexcodes: NDArray[np.str_], own: list[int], designer: str) -> tuple[list[int], list[int]]:
    """A designer's (training, held-out) emoji: families in a seeded order, held out first."""
    members: dict[str, list[int]] = {}
    for index in own:
        members.setdefault(family(str(hexcodes[index])), []).append(index)
    training: list[int] = []
    held_out: list[int] = []
    for name in sorted(members, key=lambda name: derive_seed(SEED, designer, name)):
        if len(held_out) + len(members[name]) <= HELD_OUT:
            held_out += members[name]
        elif len(training) + len(members[name]) <= TRAINING:
            training += members[name]
    return training, held_out


def house(
    images: NDArray[np.uint8], authors: NDArray[np.str_], hexcodes: NDArray[np.str_], taken: list[int], own: list[int]
) -> list[int]:
    """House images: some by each of the other designers in a seeded order, unlike all ``taken`` ones."""
    order = sorted(own, key=lambda index: derive_seed(SEED, "house", str(hexcodes[index])))
    chosen: list[int] = []
    for index in distinct(images, taken + order)[len(taken) :]:
        if len(chosen) < HOUSE and sum(authors[other] == authors[index] for other in chosen) < HOUSE_EACH:
            chosen.append(index)
    return chosen


def png(pixels: NDArray[np.uint8]) -> bytes:
    """The smallest lossless PNG: a palette where there are at most 256 colours."""
    colours, positions = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    image = Image.fromarray(pixels)
    if len(colours) <= 256:
        image = Image.fromarray(positions.reshape(pixels.shape[:2]).astype(np.uint8))
        image.putpalette(colours.tobytes())
    written = io.BytesIO()
    image.save(written, "PNG", optimize=True)
    assert np.array_equal(np.asarray(Image.open(written).convert("RGB")), pixels)
    return written.getvalue()


def write(folder: Path, arrays: dict[str, NDArray], chosen: list[int]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = []
    for index in sorted(chosen, key=lambda index: str(arrays["hexcode"][index])):
        hexcode = str(arrays["hexcode"][index])
        (folder / f"{hexcode}.png").write_bytes(png(arrays["images"][index]))
        rows.append((f"{hexcode}.png", arrays["author"][index], arrays["group"][index], hexcode))
    with (
        atomic_file(folder / "metadata.csv") as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("file_name", "contributor", "group", "hexcode"))
        table.writerows(rows)


def attribution(sizes: dict[str, tuple[int, int]], others: list[str]) -> str:
    table = "\n".join(
        f"| {designer} | {DESIGNERS[designer]} | {training} | {held_out} |"
        for designer, (training, held_out) in sizes.items()
    )
    return f"""# Attribution

The images in `images/`, `heldout/` and `house/` are emoji of [OpenMoji](https://openmoji.org), the open-source emoji
and icon project, licensed under [CC BY-SA 4.0](https://creativecommons.org/licenses/by-sa/4.0/). Each
`metadata.csv` names the designer (`contributor`) of every image.

| designer | subjects | training images | held-out images |
| --- | --- | --- | --- |
{table}

The house images, at most {HOUSE_EACH} a designer and {len(others)} in all, are by {", ".join(sorted(set(others)))}.

Changes made: the emoji were rasterised to 64 × 64 pixels on white, and a subset was chosen: twelve
designers, no skin-tone variants, no extras beyond the Unicode standard, one of several emoji that look the
same, at most {TRAINING} training images a designer, and the house images. The pixels were not altered
further. The subset was made by `studies/make_openmoji_subset.py` and is shared under the same licence;
see `LICENSE.txt`.

Neither OpenMoji nor its designers endorse this software or the credits computed with it.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("npz", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    with np.load(arguments.npz, allow_pickle=False) as file:
        arrays = {name: file[name] for name in ("images", "author", "hexcode", "group")}

    standard = [
        index
        for index in range(len(arrays["images"]))
        if not arrays["group"][index].startswith("extras-")
        and not SKIN_TONES & set(arrays["hexcode"][index].split("-"))
    ]
    candidates = [index for index in standard if arrays["author"][index] in DESIGNERS]
    candidates = distinct(arrays["images"], candidates)
    training: list[int] = []
    held_out: list[int] = []
    sizes = {}
    for designer in DESIGNERS:
        own = [index for index in candidates if arrays["author"][index] == designer]
        mine, kept_out = split(arrays["hexcode"], own, designer)
        training += mine
        held_out += kept_out
        sizes[designer] = len(mine), len(kept_out)
    write(arguments.output / "images", arrays, training)
    write(arguments.output / "heldout", arrays, held_out)
    others = [index for index in standard if arrays["author"][index] not in DESIGNERS]
    ours = house(arrays["images"], arrays["author"], arrays["hexcode"], training + held_out, others)
    write(arguments.output / "house", arrays, ours)
    write_text(arguments.output / "ATTRIBUTION.md", attribution(sizes, arrays["author"][ours].tolist()))
    print(
        f"{len(training)} training and {len(held_out)} held-out images by {len(sizes)} designers, {len(ours)} of house"
    )


if __name__ == "__main__":
    main()
