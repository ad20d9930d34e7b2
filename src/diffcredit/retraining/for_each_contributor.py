"""Tensors that are computed once for each contributor, kept in a file each, and found again."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from diffcredit.diffusion.protocol import Batch
from diffcredit.retraining.protocol import Ground
from diffcredit.util.artifacts import atomic_file, fingerprint, fingerprint_arrays

Make = Callable[[Sequence[int], Batch, Sequence[Tensor]], Iterable[Mapping[str, Tensor]]]


@dataclass(frozen=True)
class ForEachContributor:
    """One safetensors file a contributor, in the order of ``contributions.contributors``."""

    files: tuple[Path, ...]

    @classmethod
    def prepare(cls, ground: Ground, kind: str, identity: Any, make: Make, at_once: int = 1) -> Self:
        """``make([i, …], data, [places of contributor i's images in data, …])`` for the contributors that have no file
        yet, ``at_once`` of them at a time.

        A file lies in the folder ``kind`` under the fingerprint of ``identity`` (JSON: all that the tensors follow
        from but the images) and of the contributor's images, captions and places among all. A run that was cut off
        goes on with the next contributor.
        """
        files = tuple(ground.folder / kind / f"{_name(ground, identity, i)}.safetensors" for i in _contributors(ground))
        missing = [index for index, file in enumerate(files) if not file.exists()]
        if missing:
            data = ground.data()
            for some in (missing[first : first + at_once] for first in range(0, len(missing), at_once)):
                places = [torch.from_numpy(_images(ground, index)) for index in some]
                for index, tensors in zip(some, make(some, data, places), strict=True):
                    _write(files[index], {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
        return cls(files)

    @property
    def fingerprint(self) -> str:
        """Of all that is in the files, as it was when they were written."""
        return fingerprint([_content(file) for file in self.files])


def _contributors(ground: Ground) -> range:
    return range(ground.contributions.n)


def _images(ground: Ground, index: int) -> np.ndarray:
    return np.flatnonzero(ground.contributions.owner == index)


def _name(ground: Ground, identity: Any, index: int) -> str:
    contributions, rows = ground.contributions, _images(ground, index)
    captions = contributions.captions and [contributions.captions[row] for row in rows]
    images = fingerprint_arrays({"images": contributions.images[rows], "rows": rows})
    return fingerprint([identity, images, captions])[:12]


def _write(file: Path, tensors: Mapping[str, Tensor]) -> None:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}\x1f{tuple(tensor.shape)}\x1f".encode())
        digest.update(tensor.numpy().data)
    with atomic_file(file) as temporary:
        save_file(dict(tensors), temporary, {"content": digest.hexdigest()})


def _content(file: Path) -> str:
    with safe_open(file, framework="pt") as opened:
        return opened.metadata()["content"]
