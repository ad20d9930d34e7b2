"""Fusion of concatenations and sums, which diffusers' blocks write between layers, with the layers' kernels.

Within :class:`FusionMode`, a layer that receives a concatenation can ask for its parts, and the sum of a layer's result
with another tensor is computed by the layer's own kernel. The blocks' code is unchanged; results that are no longer
used are eliminated from the trace.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_SUMS = {torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__}
_MOVES = {torch.Tensor.transpose, torch.Tensor.reshape}
# Layers look the mode up here: diffusers' blocks, which call them, cannot pass it on.
_current: ContextVar["FusionMode | None"] = ContextVar("fusion", default=None)

Adding = Callable[[Tensor], Tensor]


class FusionMode(TorchFunctionMode):
    """A memory of which images are concatenations and which results have a fused sum, while a function is traced."""

    def __init__(self) -> None:
        super().__init__()
        # by the results' ids; the results are kept alive, so that ids stay unique
        self._parts: dict[int, tuple[Tensor, tuple[Tensor, Tensor]]] = {}
        self._adding: dict[int, tuple[Tensor, Adding]] = {}

    def __enter__(self) -> "FusionMode":
        self._token = _current.set(self)
        super().__enter__()
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        super().__exit__(exc_type, exc_val, exc_tb)
        _current.reset(self._token)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _changes(func, args, kwargs):  # it may be part of what was remembered
            self._parts.clear()
            self._adding.clear()
        if func in _SUMS and len(args) == 2 and not kwargs:
            # the later result, since the earlier one may have been used before
            latest = next((each for each in reversed(self._adding) if each in map(id, args)), None)
            if latest is not None:
                result, more = args if id(args[0]) == latest else args[::-1]
                if isinstance(more, Tensor) and more.shape == result.shape and more.dtype == result.dtype:
                    return self._adding[latest][1](more)
        found = func(*args, **kwargs)
        if func in _MOVES and id(args[0]) in self._adding and not kwargs:
            self._adding[id(found)] = found, _moved(self._adding[id(args[0])][1], func, args)
        if func is torch.cat:
            given: list[Any] = [*args, *kwargs.values(), 0]  # by position or by name
            tensors, dim = given[:2]
            if dim == 1 and _are_images(tensors):
                self._parts[id(found)] = found, (tensors[0], tensors[1])
        return found


def _changes(func: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a function may change its arguments: ``add_``, ``y[0] = …``, ``F.silu(y, inplace=True)``."""
    name = getattr(func, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    asked = getattr(func, "__module__", None) == F.__name__ and any(each is True for each in (*args, *kwargs.values()))
    return in_place or asked or name == "__setitem__" or name.startswith("__i")


def _moved(adding: Adding, move: Any, args: Any) -> Adding:
    """Return the fused sum for the result of a ``move``, given the one, ``adding``, for its argument."""
    shape = args[0].shape

    def add(more: Tensor) -> Tensor:
        back = more.transpose(*args[1:]) if move is torch.Tensor.transpose else more.reshape(shape)
        return move(adding(back), *args[1:])

    return add


def _are_images(tensors: Any) -> bool:
    return len(tensors) == 2 and all(each.ndim == 4 and each.dtype == tensors[0].dtype for each in tensors)


def parts_of(x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the two parts that the images ``x`` are a concatenation of, if known."""
    seams = _current.get()
    found = None if seams is None else seams._parts.get(id(x))
    return None if found is None else found[1]


def with_addition(result: Tensor, adding: Adding) -> Tensor:
    """Return ``result`` and remember that its sum with another tensor of its shape is ``adding(other)``."""
    seams = _current.get()
    if seams is not None:
        seams._adding[id(result)] = result, adding
    return result
