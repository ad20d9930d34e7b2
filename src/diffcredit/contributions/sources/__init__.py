"""Sources of contributions: a class each, whose fields are its options, that returns a record for each image.

``SOURCES`` maps the name in a study file to the class. A plug-in ``package.module:Class`` works as well.
"""

import dataclasses
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from PIL import Image

from diffcredit.errors import UserError
from diffcredit.util.sanitize import shortened

__all__ = ["AUTO", "SOURCES", "Record", "Source", "detect", "source_class", "source_options"]

AUTO = "auto"  # choose the source by what is at the path

SOURCES = {
    "folders": "diffcredit.contributions.sources.folders:Folders",
    "imagefolder": "diffcredit.contributions.sources.folders:ImageFolder",
    "npz": "diffcredit.contributions.sources.npz:Npz",
    "huggingface": "diffcredit.contributions.sources.huggingface:HuggingFace",
    "cifar100": "diffcredit.contributions.sources.published:Cifar100",
    "celebahq": "diffcredit.contributions.sources.published:CelebAHQ",
    "artbench": "diffcredit.contributions.sources.published:ArtBench",
    "openmoji": "diffcredit.contributions.sources.folders:OpenMoji",
}

METADATA = ("metadata.jsonl", "metadata.csv")  # each makes a folder an imagefolder


@dataclass(frozen=True)
class Record:
    """One image before it is decoded."""

    name: str
    """The image's identity within its source: unique, the same on every machine."""
    contributor: str | None
    """None only for held-out images."""
    open: Callable[[], Image.Image]
    """Opens the image lazily, so that its size can be checked before it is decoded; called from threads."""
    caption: str | None = None
    heldout: bool = False
    """Whether the source itself keeps this image out of training."""


class Source(Protocol):
    """A way to read contributions. Its fields, if it has any, are its options in a study file.

    Called with the study file's ``path``, None where it names none. ``contributor`` names the column or array of the
    contributors; sources that ``auto`` finds also take None, as for held-out images, where nobody needs to be named.
    """

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]: ...


def detect(path: Path) -> str:
    """Return the name of the source that reads what is at ``path``."""
    if path.is_dir():
        return "imagefolder" if any((path / name).is_file() for name in METADATA) else "folders"
    if path.name in METADATA:
        return "imagefolder"
    if path.suffix.lower() == ".npz":
        return "npz"
    raise UserError(f"{path}: a folder, {', '.join(METADATA)} or an .npz file is accepted")


def source_options(name: str) -> list[str]:
    """Return the options of the source of that name; ``auto`` takes none."""
    return [] if name == AUTO else [field.name for field in dataclasses.fields(source_class(name))]


def source_class(name: str) -> Any:
    if name not in SOURCES:
        accepted = ", ".join((AUTO, *SOURCES))
        raise UserError(f"source: {shortened(name)}; {accepted} are accepted, or a source of your own")
    module, _, attribute = SOURCES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
