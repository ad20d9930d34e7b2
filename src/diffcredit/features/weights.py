"""Weights of feature extractors: from a file, torch's cache or the web, verified by their hash.

``key`` is the study file's key that names a file of weights; every error starts with it.
"""

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from urllib.request import urlopen

from diffcredit.errors import UserError
from diffcredit.util.artifacts import atomic_file

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

SILENCE = 30.0  # seconds after which a server that sends nothing is given up


@dataclass(frozen=True)
class PublishedWeights:
    """A published file of weights: its address, and its SHA-256 or the beginning of it. ``licence`` is for readers."""

    url: str
    sha256: str
    licence: str

    @property
    def name(self) -> str:
        return unquote(self.url.rpartition("/")[2])

    @property
    def cached(self) -> Path:
        """Its place in the cache of torch and of the packages that use the same weights."""
        import torch

        return Path(torch.hub.get_dir()) / "checkpoints" / self.name

    def file(self, key: str) -> Path:
        """Return the verified file from torch's cache; download it if it is not there."""
        try:
            if not self.cached.exists():
                with atomic_file(self.cached) as temporary:
                    with urlopen(self.url, timeout=SILENCE) as source, temporary.open("wb") as target:
                        shutil.copyfileobj(source, target)
                    if not file_hash(temporary, key).startswith(self.sha256):
                        raise OSError("the file arrived damaged")
        except (OSError, HTTPException) as error:
            raise UserError(
                f"{key}: {self.name} is not here and cannot be downloaded ({error}); download {self.url} and put it at "
                f"{self.cached}, or name the file with {key}"
            ) from error
        self.verify(self.cached, key)
        return self.cached

    def verify(self, file: Path, key: str, remedy: str = "") -> None:
        """Raise a UserError unless ``file`` is the published one; ``remedy`` is advice besides downloading it again."""
        found = file_hash(file, key)
        if not found.startswith(self.sha256):
            raise UserError(
                f"{key}: {file} has the SHA-256 {found[:16]}…, the published {self.name} {self.sha256[:16]}…; "
                f"download it again from {self.url}{remedy}"
            )


def file_hash(file: Path, key: str) -> str:
    """Return the SHA-256 of a file's content."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{key}: {file}: {error.strerror}; a file of weights is expected") from None


def folder_hash(folder: Path, key: str) -> str:
    """Return the SHA-256 of a folder's file names and contents but for hidden ones, where downloads leave locks."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    visible = [name for name in sorted(files) if not any(part.startswith(".") for part in name.split("/"))]
    if not visible:
        raise UserError(f"{key}: {folder}: no files; a folder of weights is expected")
    digest = hashlib.sha256()
    for name in visible:
        digest.update(f"{name}\x1f{file_hash(files[name], key)}\x1f".encode())
    return digest.hexdigest()


def read_state(file: Path, key: str) -> "dict[str, Tensor]":
    """Read the named tensors of a safetensors file or a torch checkpoint; refuse a pickle with anything else in it."""
    import torch
    from safetensors.torch import load_file

    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        state: Any = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{key}: {file}: no such file; a file of weights is expected") from None
    except (UnpicklingError, RuntimeError) as error:  # their messages advise to run what is in the file
        raise UserError(f"{key}: {file} is damaged or holds more than tensors; named tensors are accepted") from error
    except Exception as error:  # both libraries raise whatever a broken file leads them to
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(f"{key}: {file} cannot be read as weights ({reason})") from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise UserError(f"{key}: {file} holds {type(state).__name__}; named tensors are expected")
    return state


def load_state(network: "Module", state: "Mapping[str, Tensor]", file: Path, key: str) -> None:
    """Replace the tensors of ``network``, which may be on the meta device; refuse those of another architecture."""
    try:
        report = network.load_state_dict(dict(state), strict=False, assign=True)
    except RuntimeError as error:  # other shapes
        reason = " ".join(str(error).partition(":\n")[2].split())
    else:
        # old checkpoints have no counts of batches, and nothing here needs them
        missing = [name for name in report.missing_keys if not name.endswith(".num_batches_tracked")]
        found = {"it misses": missing, "it has unknown": report.unexpected_keys}
        reason = "; ".join(f"{what} {', '.join(names)}" for what, names in found.items() if names)
    if reason:
        raise UserError(f"{key}: {file} is of another network than {type(network).__name__}: {reason[:300]}")
