"""The file from which an interrupted training continues, and Ctrl-C between steps, so that it can be written."""

import json
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from diffcredit.diffusion.nested_tensors import flatten, unflatten
from diffcredit.errors import UserError
from diffcredit.util.artifacts import atomic_file, canonical_json

CHECKPOINT_SECONDS = 15.0  # between two checkpoints


def write_checkpoint(path: Path, identity: str, state: dict[str, Any]) -> None:
    """Write ``state``, of dicts, lists and tensors, to ``path`` for the run of this ``identity``, whole or not at
    all."""
    structure, tensors = flatten(state)
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with atomic_file(path) as temporary:
        save_file(contiguous, temporary, {"identity": identity, "structure": canonical_json(structure)})


def read_checkpoint(path: Path, identity: str, device: torch.device) -> dict[str, Any] | None:
    """Return the state in ``path``, on ``device``; None if it belongs to another run, or there is no file."""
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


@contextmanager
def interruption(active: bool) -> Generator[threading.Event]:
    """Turn Ctrl-C into an event, which a training loop checks between steps, where its state is complete.

    Only if ``active``, that is, if a checkpoint can be written, and in the main thread: Python lets no other handle
    signals.
    """
    event = threading.Event()
    if not active or threading.current_thread() is not threading.main_thread():
        yield event
        return
    previous = signal.signal(signal.SIGINT, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, previous)
