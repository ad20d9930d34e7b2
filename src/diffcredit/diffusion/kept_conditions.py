"""Conditions of texts on disk, beside the cached latents: a later process needs no text encoder for them.

A file has the conditions of several texts, tensors (k, …) in the type in which they were computed, and the texts. It is
read as memory of the file (mmap): processes on one machine share it, and it is not counted as a process's own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from diffcredit.diffusion.digests import tensors_fingerprint
from diffcredit.errors import DiffcreditError
from diffcredit.util.artifacts import atomic_file, canonical_json, fingerprint, intact

Texts = list[str | None]


def files_of(folder: Path, identity: str) -> list[Path]:
    """Return the files in ``folder`` with conditions of ``identity``, the fingerprint of what computed them."""
    return sorted(folder.glob(f"conditions-{identity[:12]}-*.safetensors"))


def write_conditions(
    folder: Path, identity: str, texts: Sequence[str | None], conditions: Mapping[str, Tensor]
) -> Path:
    """Write the ``conditions`` (k, …) of k ``texts``; return the file."""
    named = canonical_json(list(texts))
    file = folder / f"conditions-{identity[:12]}-{fingerprint(list(texts))[:12]}.safetensors"
    metadata = {"of": identity, "texts": named, "content": tensors_fingerprint(conditions, named)}
    with atomic_file(file) as temporary:
        save_file(dict(conditions), temporary, metadata)
    return file


def read_conditions(file: Path, identity: str) -> tuple[Texts, dict[str, Tensor]]:
    """Return the texts of a file and their conditions (k, …); refuse one that is damaged or of another identity."""
    with intact(file):
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata() or {}
        conditions = load_file(file)
    texts = list(_texts_in(metadata))
    whole = metadata.get("content") == tensors_fingerprint(conditions, metadata.get("texts", ""))
    if not whole or metadata.get("of") != identity or {len(each) for each in conditions.values()} != {len(texts)}:
        raise DiffcreditError(f"{file}: damaged (not the conditions that were written); remove it to have it made anew")
    return texts, conditions


def _texts_in(metadata: Mapping[str, str]) -> Iterator[str | None]:
    try:
        found = json.loads(metadata.get("texts", "[]"))
    except ValueError:
        return
    yield from found
