"""The protocol of a source, and the record it returns for each image."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from PIL import Image


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

    Called with the study file's ``path``, None where it names none; a source that needs one refuses None.
    ``contributor`` names the column or array of the contributors; None means that nobody needs to be named, as for
    held-out images. The records may come in any order.
    """

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]: ...
