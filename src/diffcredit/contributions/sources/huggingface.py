"""A dataset of Hugging Face's ``datasets`` package, from disk or from the hub.

Images are taken from the dataset undecoded and opened like any other image: in accepted formats only, and with the size
checked before the pixels. An image that the dataset only points to must be among the dataset's own files. From its
version 4 on, the package runs no code that comes with a dataset.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from PIL import Image

from diffcredit.contributions.images import UnreadableImage, open_bytes, open_image
from diffcredit.contributions.sources import Record
from diffcredit.contributions.sources.files import existing
from diffcredit.contributions.sources.tables import caption_of, contributor_of, reason_of
from diffcredit.errors import UserError
from diffcredit.util.links import real_path


@dataclass(frozen=True)
class HuggingFace:
    """A dataset that ``save_to_disk`` wrote at ``path``, or the ``dataset`` of that name on the hub."""

    dataset: str | None = None
    """``user/name`` on the hub, instead of a path."""
    split: str = "train"
    """The split, where there are several."""
    revision: str | None = None
    """A commit, branch or tag on the hub; by default the newest."""
    image: str = "image"
    """The column of the images."""
    caption: str | None = None
    """The column of the captions: texts, integers or class labels, which give their names."""

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """Return one record for each row, named by its number; ``contributor`` has texts, integers or class labels."""
        try:
            package: Any = import_module("datasets")
        except ImportError:
            raise UserError('source: huggingface needs a package: pip install "diffcredit[datasets]"') from None
        if (path is None) == (self.dataset is None):
            raise UserError("path and dataset: one of them is accepted, a folder or the hub's user/name")
        if self.dataset is None:
            folder = existing(path)
            where, dataset, folders = str(folder), self._from_disk(package, folder), [folder]
        else:
            from huggingface_hub.constants import HF_HUB_CACHE

            if not re.fullmatch(r"[\w.-]+/[\w.-]+", self.dataset):  # anything else might be a local file
                raise UserError(f"dataset: {self.dataset!r}; user/name of a dataset on the hub is accepted")
            try:
                dataset = package.load_dataset(self.dataset, split=self.split, revision=self.revision)
            except Exception as error:  # networks, permissions, splits, formats: each has its own errors
                why = f"cannot be loaded from the hub ({reason_of(error)})"
                raise UserError(f"dataset: {self.dataset!r} {why}") from error
            where = f"dataset {self.dataset}"
            # the package's own cache: the dataset's files, and the archives it unpacked
            files = Path(HF_HUB_CACHE) / f"datasets--{self.dataset.replace('/', '--')}"
            folders = [files, Path(package.config.DOWNLOADED_DATASETS_PATH)]
        dataset = dataset.with_format(None)
        if not isinstance(_feature(dataset, self.image, where), package.Image):
            raise UserError(f"{where}: column {self.image!r} is {dataset.features[self.image]}; an Image is accepted")
        images = dataset.select_columns([self.image]).cast_column(self.image, package.Image(decode=False))
        givers = _values(package, dataset, contributor, where)
        captions = _values(package, dataset, self.caption, where)
        records = []
        for row in range(len(dataset)):
            name = f"{row:08d}"
            giver = None if contributor is None else contributor_of(givers[row], contributor, name, where)
            caption = None if self.caption is None else caption_of(captions[row], self.caption, f"{where}: {name}")
            records.append(Record(name, giver, partial(_open, images, row, self.image, folders), caption))
        return records

    def _from_disk(self, package: ModuleType, path: Path) -> Any:
        try:
            found = package.load_from_disk(str(path))
        except Exception as error:  # reading a stranger's files may raise anything
            raise UserError(f"{path}: not a dataset that save_to_disk wrote ({reason_of(error)})") from error
        if not isinstance(found, package.DatasetDict):
            return found
        if self.split not in found:
            raise UserError(f"split: {self.split!r} is not in {path}; there are: {', '.join(found)}")
        return found[self.split]


def _feature(dataset: Any, column: str, where: str) -> Any:
    if column not in dataset.features:
        raise UserError(f"{where}: no column {column!r}; there are: {', '.join(dataset.features) or 'none'}")
    return dataset.features[column]


def _values(package: ModuleType, dataset: Any, column: str | None, where: str) -> list[Any]:
    """Return a column of texts, integers or class labels, row by row."""
    if column is None:
        return []
    feature = _feature(dataset, column, where)
    if not isinstance(feature, package.Value | package.ClassLabel):
        raise UserError(f"{where}: column {column!r} is {feature}; texts, integers or class labels are accepted")
    values = dataset.select_columns([column])[:][column]
    if isinstance(feature, package.ClassLabel):
        known = range(len(feature.names))
        return [feature.names[value] if value in known else None for value in values]
    return values


def _open(images: Any, row: int, column: str, folders: Sequence[Path]) -> Image.Image:
    image = images[row][column]
    if image is None:
        raise UnreadableImage("the row has no image")
    if image["bytes"] is not None:
        return open_bytes(image["bytes"])
    file = Path(image["path"] or "")
    if not any(real_path(file).is_relative_to(real_path(folder)) for folder in folders):
        raise UnreadableImage(f"its path {str(file)!r} leads out of the dataset; images within it are accepted")
    return open_image(file)
