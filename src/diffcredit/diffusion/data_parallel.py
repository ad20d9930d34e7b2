"""Data-parallel training on several devices, one process each: every process takes its share of every batch.

The processes are those of ``torch.distributed``, as ``torchrun`` or ``accelerate launch`` with an
``accelerate.Accelerator()`` sets them up. All draw the same batches. Their gradients are summed, so every process has
the gradient of the whole batch and the same weights.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from diffcredit.errors import UserError


@dataclass(frozen=True)
class Processes:
    """The ``count`` processes of a training, seen from the one at ``rank``; a single one if ``hosts`` is None."""

    rank: int = 0
    count: int = 1
    hosts: dist.ProcessGroup | None = None

    def share(self, size: int) -> range:
        """Return this process's positions in a batch of ``size`` B, from ⌊rB/W⌋ to ⌊(r+1)B/W⌋ − 1."""
        if size < self.count:
            raise UserError(f"batch_size: {size} is less than the {self.count} processes; accepted: one sample each")
        return range(self.rank * size // self.count, (self.rank + 1) * size // self.count)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes, all in one message."""
        if self.hosts is None:
            return
        message = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(message, group=self.hosts if message.device.type == "cpu" else None)
        for tensor, total in zip(tensors, message.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def gather(self, value: int) -> list[int]:
        """Return every process's value, by rank."""
        if self.hosts is None:
            return [value]
        values = [torch.zeros((), dtype=torch.int64) for _ in range(self.count)]
        dist.all_gather(values, torch.tensor(value, dtype=torch.int64), group=self.hosts)
        return [int(value) for value in values]


@contextmanager
def processes() -> Generator[Processes]:
    """Yield the processes that train together with this one; only this one without ``torch.distributed``."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        yield Processes()
        return
    # hosts communicate by a group of their own, so that they do not wait for devices
    hosts = dist.new_group(backend="gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), hosts)
    finally:
        dist.destroy_process_group(hosts)
