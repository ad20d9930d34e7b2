"""Convert nested states, such as an optimizer's ``state_dict()``, to named tensors and JSON, and back."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def flatten(state: Any) -> tuple[Any, dict[str, Tensor]]:
    """Return ``state``, of dicts, lists, tuples, tensors and plain values, as a JSON value and its tensors by name.

    Each node of the JSON value is one of ``{"tensor": name}``, ``{"dict": [[key, node], …]}``, ``{"list": [node, …]}``,
    ``{"tuple": [node, …]}`` and ``{"value": plain}``, so keys keep their type. A repeated tensor is stored once.
    """
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
