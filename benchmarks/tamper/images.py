"""Changes to the contributors' images: files and folders exchanged, renamed, removed, other pixels."""

import os
import shutil
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image

from benchmarks.tamper.copies import Copy


def change_images(copy: Copy, random: Random) -> str:
    folder = copy.folder / "images"
    first, second = random.sample(sorted(folder.iterdir()), 2)
    act = random.choice(list(ACTS))
    ACTS[act](first, second, random)
    return f"{act}: {first.name} and {second.name}"


def _exchange(first: Path, second: Path) -> None:
    free = first.with_name("free")
    for old, new in ((first, free), (second, first), (free, second)):
        old.rename(new)


def _folders(first: Path, second: Path, random: Random) -> None:
    _exchange(first, second)


def _files(first: Path, second: Path, random: Random) -> None:
    _exchange(first / "0.png", second / "1.png")


def _contents(first: Path, second: Path, random: Random) -> None:
    """Exchange what is in two files, with the times that they had."""
    files = first / "0.png", second / "1.png"
    contents, times = [each.read_bytes() for each in files], [each.stat().st_mtime_ns for each in files]
    for file, content, time in zip(files, reversed(contents), times, strict=True):
        file.write_bytes(content)
        os.utime(file, ns=(time, time))


def _pixels(first: Path, second: Path, random: Random) -> None:
    pixels = np.random.default_rng(random.randrange(2**32)).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(first / "0.png")


def _byte(first: Path, second: Path, random: Random) -> None:
    content = bytearray((first / "0.png").read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    (first / "0.png").write_bytes(content)


def _copied(first: Path, second: Path, random: Random) -> None:
    shutil.copyfile(first / "0.png", second / random.choice(["2.png", "0.png"]))


def _linked(first: Path, second: Path, random: Random) -> None:
    shutil.rmtree(first)
    first.symlink_to(second, target_is_directory=True)


ACTS = {
    "folders exchanged": _folders,
    "files exchanged": _files,
    "contents exchanged": _contents,
    "other pixels": _pixels,
    "a byte": _byte,
    "an image copied": _copied,
    "a folder linked": _linked,
    "an image removed": lambda first, second, random: (first / "0.png").unlink(),
    "a folder removed": lambda first, second, random: shutil.rmtree(first),
    "a folder renamed": lambda first, second, random: first.rename(first.with_name("zoe")),
    "another file": lambda first, second, random: (first / "notes.txt").write_text("x"),
}
