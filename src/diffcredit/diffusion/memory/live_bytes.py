"""The memory that a computation would need, from running it on tensors without numbers (device ``meta``)."""

import weakref
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes:
    """Counts the bytes of storages that are made within the block, while they live; ``peak`` is the most at once.

    Attention counts as kernels do it that never write the matrix of attention weights. Whatever depends on numbers,
    such as the length of a text, is taken at its largest.
    """

    def __init__(self) -> None:
        self.now = self.peak = 0
        self._known: set[int] = set()
        self._modes = ExitStack()

    def __enter__(self) -> Self:
        self._modes.enter_context(_without_attention_weights())
        self._modes.enter_context(_Counting(self))
        return self

    def __exit__(self, *error: object) -> None:
        self._modes.close()

    def add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        identity, size = id(storage), storage.nbytes()
        if identity in self._known:
            return
        self._known.add(identity)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._remove, identity, size)

    def _remove(self, identity: int, size: int) -> None:
        self._known.discard(identity)
        self.now -= size


class _Counting(TorchDispatchMode):
    def __init__(self, live: LiveBytes) -> None:
        super().__init__()
        self._live = live

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.index.Tensor:
            args = (args[0], [_all_of(each) for each in args[1]])
        given = {id(each.untyped_storage()) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, Tensor) and id(each.untyped_storage()) not in given:
                self._live.add(each)
        return result


def _all_of(index: Tensor | None) -> Tensor | None:
    """Return a mask without numbers as the places that it would select if all of it were true."""
    if index is None or index.dtype != torch.bool or index.device.type != "meta":
        return index
    return torch.empty(index.numel(), dtype=torch.long, device="meta")


@contextmanager
def _without_attention_weights() -> Generator[None]:
    """Replace attention on tensors without numbers. A mode of torch would not be seen by what is computed a second time
    in a backward pass."""
    own = F.scaled_dot_product_attention

    def attention(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if query.device.type == "meta":
            return _Attended.apply(query, key, value)
        return own(query, key, value, *args, **kwargs)

    F.scaled_dot_product_attention = attention  # ty: ignore[invalid-assignment]
    try:
        yield
    finally:
        F.scaled_dot_product_attention = own


class _Attended(torch.autograd.Function):
    """The shapes of attention, its gradient, and what is kept for that: queries, keys, values, the result, and the
    logarithms of the sums."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        query, key, value = args
        result = query.new_empty(*query.shape[:-1], value.shape[-1])
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, result, sums)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(each) for each in ctx.saved_tensors[:3])
