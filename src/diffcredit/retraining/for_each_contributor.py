"""Tensors computed once per contributor and cached, one file each."""

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

from diffcredit.diffusion.model import Batch
from diffcredit.retraining.base import RetrainingContext
from diffcredit.util.artifacts import atomic_file, fingerprint, fingerprint_arrays

Make = Callable[[Sequence[int], Batch, Sequence[Tensor]], Iterable[Mapping[str, Tensor]]]


@dataclass(frozen=True)
class ForEachContributor:
    """One safetensors file per contributor, in the order of ``contributions.contributors``."""

    files: tuple[Path, ...]

    @classmethod
    def prepare(cls, context: RetrainingContext, kind: str, identity: Any, make: Make, at_once: int = 1) -> Self:
        """Call ``make([i, …], data, [indices of contributor i's images in data, …])`` for the contributors without a
        file, ``at_once`` of them at a time.

        A file is named by the fingerprint of ``identity`` (JSON: all that fixes the tensors beside the images) and of
        the contributor's images, captions and indices, in the folder ``kind``. An interrupted run continues with the
        next contributor.
        """
        names = (_name(context, identity, index) for index in range(context.contributions.n))
        files = tuple(context.folder / kind / f"{name}.safetensors" for name in names)
        missing = [index for index, file in enumerate(files) if not file.exists()]
        if missing:
            data = context.data()
            for some in (missing[first : first + at_once] for first in range(0, len(missing), at_once)):
                places = [torch.from_numpy(_images(context, index)) for index in some]
                for index, tensors in zip(some, make(some, data, places), strict=True):
                    _write(files[index], {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
        return cls(files)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the contents of all files, as they were written."""
        return fingerprint([_content(file) for file in self.files])


def _images(context: RetrainingContext, index: int) -> np.ndarray:
    return np.flatnonzero(context.contributions.owner == index)


def _name(context: RetrainingContext, identity: Any, index: int) -> str:
    contributions, rows = context.contributions, _images(context, index)
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
