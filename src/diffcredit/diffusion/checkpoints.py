"""The file from which an interrupted training continues, and Ctrl-C between steps, so that it can be written."""

import json
import signal
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from diffcredit.errors import UserError
from diffcredit.util.artifacts import atomic_file, canonical_json

CHECKPOINT_SECONDS = 15.0  # between two checkpoints


def write_checkpoint(path: Path, identity: str, state: dict[str, Any]) -> None:
    """Write ``state``, of dicts, lists and tensors, for the run of this ``identity``, whole or not at all."""
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
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{path}: not a checkpoint of this training ({error}); remove it to train from the start"
        ) from None


@contextmanager
def interruption(active: bool) -> Generator[threading.Event]:
    """Turn Ctrl-C into an event, which a training loop checks between steps, where its state is complete. Only if
    ``active``, and in the main thread: Python lets no other handle signals."""
    event = threading.Event()
    if not active or threading.current_thread() is not threading.main_thread():
        yield event
        return
    previous = signal.signal(signal.SIGINT, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, previous)


def flatten(state: Any) -> tuple[Any, dict[str, Tensor]]:
    """Return ``state``, of dicts, lists, tuples, tensors and plain values, as JSON and its tensors by name. Each node
    of the JSON names its kind, so keys and tuples keep their type. A repeated tensor is stored once."""
    tensors: dict[str, Tensor] = {}
    names: dict[tuple[Any, ...], str] = {}

    def node(value: Any, path: str) -> dict[str, Any]:
        match value:
            case Tensor():
                memory = (value.data_ptr(), value.shape, value.stride(), value.dtype, value.device)
                name = names.setdefault(memory, path) if value.numel() else path
                tensors[name] = value.detach()
                return {"tensor": name}
            case dict():
                return {"dict": [[key, node(part, f"{path}/{key}")] for key, part in value.items()]}
            case list() | tuple():
                parts = [node(part, f"{path}/{index}") for index, part in enumerate(value)]
                return {"list" if isinstance(value, list) else "tuple": parts}
            case None | bool() | int() | float() | str():
                return {"value": value}
        raise TypeError(f"{path}: a {type(value).__name__} cannot be stored")

    return node(state, "state"), tensors


def unflatten(structure: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the state that :func:`flatten` was given."""
    ((kind, content),) = structure.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "dict":
            return {key: unflatten(part, tensors) for key, part in content}
        case "list":
            return [unflatten(part, tensors) for part in content]
        case "tuple":
            return tuple(unflatten(part, tensors) for part in content)
        case "value":
            return content
    raise ValueError(f"{kind!r} is no kind of node")
