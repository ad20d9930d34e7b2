"""The file that a training run continues from: nested tensors under an identity, written atomically."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from diffcredit.diffusion.nested_tensors import flatten, unflatten
from diffcredit.errors import UserError
from diffcredit.util.artifacts import atomic_file, canonical_json

CHECKPOINT_SECONDS = 15.0  # between two


def write_checkpoint(path: Path, identity: str, state: dict[str, Any]) -> None:
    """Keeps ``state`` in ``path`` for the run of this ``identity``."""
    structure, tensors = flatten(state)
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with atomic_file(path) as temporary:
        save_file(contiguous, temporary, {"identity": identity, "structure": canonical_json(structure)})


def read_checkpoint(path: Path, identity: str, device: torch.device) -> dict[str, Any] | None:
    """The state kept in ``path``, on ``device``; none where it is of another run, or there is no file."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata()
            if metadata["identity"] != identity:
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return unflatten(json.loads(metadata["structure"]), tensors)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: not a checkpoint of this training ({error}); remove it to train from the start"
        ) from None
