"""Training on several devices at once, one process each: every process takes its share of every batch.

The processes are those of ``torch.distributed``, as ``torchrun`` or ``accelerate launch`` with an
``accelerate.Accelerator()`` set them up. All draw the same batches; their gradients are summed, so every
process has the whole batch's gradient and the same weights.
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
    """The ``count`` processes of a training, seen by the one at ``rank``; alone where no ``hosts`` group is."""

    rank: int = 0
    count: int = 1
    hosts: dist.ProcessGroup | None = None

    def share(self, size: int) -> range:
        """The places in a batch of ``size`` that are this process's: contiguous, ⌊rB/W⌋ to ⌊(r+1)B/W⌋."""
        if size < self.count:
            raise UserError(f"batch_size: {size} is less than the {self.count} processes; accepted: one sample each")
        return range(self.rank * size // self.count, (self.rank + 1) * size // self.count)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replaces each tensor by its sum over the processes, all in one message."""
        if self.hosts is None:
            return
        message = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(message, group=self.hosts if message.device.type == "cpu" else None)
        for tensor, total in zip(tensors, message.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def gather(self, value: int) -> list[int]:
        """Every process's value, by rank."""
        if self.hosts is None:
            return [value]
        values = [torch.zeros((), dtype=torch.int64) for _ in range(self.count)]
        dist.all_gather(values, torch.tensor(value, dtype=torch.int64), group=self.hosts)
        return [int(value) for value in values]


@contextmanager
def processes() -> Generator[Processes]:
    """The processes that train together with this one; this one alone without ``torch.distributed``."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        yield Processes()
        return
    # hosts talk over a group of their own, so that no device is waited for
    hosts = dist.new_group(backend="gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), hosts)
    finally:
        dist.destroy_process_group(hosts)
