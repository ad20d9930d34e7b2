"""What is read of strangers, one target each: its cases, how a case is laid out in a folder, and what then reads it."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from benchmarks.fuzz import archives, studies, tables
from benchmarks.fuzz.bytes import damaged_images
from diffcredit.contributions import Contributions, load_contributions
from diffcredit.study.config import read_config
from diffcredit.study.prepared import build_family, build_properties
from diffcredit.study.study import Study
from diffcredit.util.consent import NO_PLUGINS
from diffcredit.util.sanitize import single_line

SECRET = (1, 2, 3)
"""The colour of the image outside, which no contributions may hold."""


@dataclass(frozen=True)
class Target:
    cases: st.SearchStrategy[Any]
    share: int
    """Of 100 cases of a campaign, how many are of this kind."""
    lay_out: Callable[[Any, Path], None]
    """Writes the case into the folder, which has what ``prepare`` made."""
    read: Callable[[Path], None]
    """Ends, or raises a UserError."""


def prepare(root: Path) -> tuple[Path, Path]:
    """The folder of the cases, with valid images in it, and the one outside with an image that nobody may see."""
    folder, outside = root / "folder", root / "outside"
    outside.mkdir(parents=True)
    Image.new("RGB", (8, 8), SECRET).save(outside / "secret.png")
    for name in tables.FILES:
        file = folder / "table" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (200, 0, 0)).save(file)
    (folder / "table" / tables.LINK).symlink_to(outside / "secret.png")
    for place in ("images/a", "images/b", "names/a", "names/b", "study"):
        (folder / place).mkdir(parents=True)
        Image.new("RGB", (8, 8), (0, 200, 0)).save(folder / place / "good.png")
    (folder / "study" / "hostile_plugin.py").write_text("raise SystemExit('hostile code ran')\n")
    os.environ[NO_PLUGINS] = "1"
    return folder, outside


def _check(contributions: Contributions) -> None:
    for images in (contributions.images, contributions.heldout):
        assert not (images == np.array(SECRET, np.uint8)).all(axis=(1, 2, 3)).any(), "the image outside was read"
    assert len(contributions.fingerprint) == 64


def _table(name: str) -> tuple[Callable[[bytes, Path], None], Callable[[Path], None]]:
    def lay_out(content: bytes, folder: Path) -> None:
        for other in ("metadata.jsonl", "metadata.csv"):
            (folder / "table" / other).unlink(missing_ok=True)
        (folder / "table" / name).write_bytes(content)

    def read(folder: Path) -> None:
        _check(load_contributions(folder / "table", contributor="artist", resolution=4))

    return lay_out, read


def _image(case: tuple[str, bytes], folder: Path) -> None:
    for old in (folder / "images/a").glob("case.*"):
        old.unlink()
    (folder / "images/a" / f"case.{case[0]}").write_bytes(case[1])


def _read_images(folder: Path) -> None:
    _check(load_contributions(folder / "images", resolution=4))


def _archive(content: bytes, folder: Path) -> None:
    (folder / "case.npz").write_bytes(content)


def _read_archive(folder: Path) -> None:
    _check(load_contributions(folder / "case.npz", contributor="artist", resolution=4))


def _study(content: bytes, folder: Path) -> None:
    (folder / "study" / "study.yaml").write_bytes(content)


def _read_study(folder: Path) -> None:
    study = Study.load(folder / "study")
    build_family(study.config, study.file)
    build_properties(study.config, study.file)
    study.recipe.build()


def _read_text(folder: Path) -> None:
    read_config(folder / "study" / "study.yaml")


# what a file system takes: any bytes but / and NUL
_NAMES = st.one_of(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20),
    st.binary(min_size=1, max_size=20).filter(lambda name: b"/" not in name and b"\0" not in name).map(os.fsdecode),
)


def _name(case: tuple[str, str], folder: Path) -> None:
    """A contributor's folder and an image of those names, in place of the case before."""
    for old in (folder / "names").iterdir():
        if old.name not in ("a", "b"):
            shutil.rmtree(old)
    giver, image = case
    place = folder / "names" / giver[:60]
    if place.name in ("", "a", "b") or place.parent != folder / "names" or place.exists():
        return
    place.mkdir()
    (place / f"{image[:60]}.png").write_bytes((folder / "names/a/good.png").read_bytes())


def _read_names(folder: Path) -> None:
    contributions = load_contributions(folder / "names", resolution=4)
    _check(contributions)
    for name in (*contributions.names, *contributions.contributors):
        assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in single_line(name))


TARGETS = {
    "study files, values changed": Target(studies.mutants(), 6, _study, _read_study),
    "study files, text damaged": Target(studies.texts(), 10, _study, _read_text),
    "metadata.jsonl": Target(tables.json_lines, 16, *_table("metadata.jsonl")),
    "metadata.csv": Target(tables.csv_lines, 14, *_table("metadata.csv")),
    "images": Target(damaged_images(), 30, _image, _read_images),
    ".npz archives": Target(archives.archives, 18, _archive, _read_archive),
    "names of folders and files": Target(st.tuples(_NAMES, _NAMES), 6, _name, _read_names),
}
