"""Sources of contributions: one file each, with a class whose fields are its options.

``SOURCES`` maps the name in a study file to the class. A plug-in ``package.module:Class`` works as well.
"""

import dataclasses
import importlib
from pathlib import Path
from typing import Any

from diffcredit.contributions.sources.record import Record, Source
from diffcredit.errors import UserError
from diffcredit.util.sanitize import shortened

__all__ = ["AUTO", "SOURCES", "Record", "Source", "detect", "source_named", "source_options"]

AUTO = "auto"
"""The name for: choose the source by what is at the path."""

SOURCES = {
    "folders": "diffcredit.contributions.sources.folders:Folders",
    "imagefolder": "diffcredit.contributions.sources.imagefolder:ImageFolder",
    "npz": "diffcredit.contributions.sources.npz:Npz",
    "huggingface": "diffcredit.contributions.sources.huggingface:HuggingFace",
    "cifar100": "diffcredit.contributions.sources.cifar100:Cifar100",
    "celebahq": "diffcredit.contributions.sources.celebahq:CelebAHQ",
    "artbench": "diffcredit.contributions.sources.artbench:ArtBench",
    "openmoji": "diffcredit.contributions.sources.openmoji:OpenMoji",
}

METADATA = ("metadata.jsonl", "metadata.csv")
"""The files that make a folder an ``imagefolder``."""


def detect(path: Path) -> str:
    """Return the name of the source that reads what is at ``path``."""
    if path.is_dir():
        return "imagefolder" if any((path / name).is_file() for name in METADATA) else "folders"
    if path.name in METADATA:
        return "imagefolder"
    if path.suffix.lower() == ".npz":
        return "npz"
    raise UserError(f"{path}: a folder, {', '.join(METADATA)} or an .npz file is accepted")


def source_named(name: str) -> Source:
    """Return the source of that name with its default options."""
    return _class(name)()


def source_options(name: str) -> list[str]:
    """Return the options of the source of that name; ``auto`` takes none."""
    return [] if name == AUTO else [field.name for field in dataclasses.fields(_class(name))]


def _class(name: str) -> Any:
    if name not in SOURCES:
        raise UserError(
            f"source: {shortened(name)}; {', '.join((AUTO, *SOURCES))} are accepted, or a source of your own"
        )
    module, _, attribute = SOURCES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
