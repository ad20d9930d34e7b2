"""Dropout whose choices are counted, as noises are: which inputs of a sample are dropped follows from the step's key,
from which of the network's dropouts it is and from the sample's place in the batch. So it is the same on every device,
in micro-batches, on several GPUs, and for a model among others."""

import torch
from torch import Tensor, nn

from diffcredit.diffusion.noises import counted, hashed, signed
from diffcredit.errors import DiffcreditError
from diffcredit.util.seeds import derive_seed

LEVELS = 2**16  # of a share that is dropped
APART = 2**32  # words of 64 bits between one sample and the next


class CountedDropout(nn.Module):
    """Dropout of ``share``, number ``number`` of a network; while it has no ``keys`` (K,), int64, of the models whose
    samples follow each other in what it is given, it passes everything."""

    def __init__(self, share: float, number: int) -> None:
        super().__init__()
        self.dropped = round(share * LEVELS)
        self._salt = signed(derive_seed("dropout", number) % 2**64)
        self.keys: Tensor | None = None
        self.first = 0  # the place in the batch of the first sample that comes
        self.table: Tensor | None = None  # counters, if who calls has them

    def forward(self, x: Tensor) -> Tensor:
        if self.keys is None:
            return x
        each = x.reshape(len(self.keys), -1, x[0].numel())  # (K, b, n)
        words = -(-each.shape[2] // 4)  # a word is four choices
        places = range(self.first, self.first + each.shape[1])
        table = counted(max(places.stop, words), x.device) if self.table is None else self.table
        if len(table) < max(places.stop, words):
            raise DiffcreditError(f"dropout of {each.shape[2]} numbers of a sample; at most {4 * len(table)} are known")
        samples = table[places.start : places.stop] * APART
        bits = hashed((self.keys ^ self._salt)[:, None, None] + samples[:, None] + table[:words])
        levels = torch.stack([(bits >> low) & (LEVELS - 1) for low in (0, 16, 32, 48)], dim=-1)
        kept = levels.flatten(2)[:, :, : each.shape[2]] >= self.dropped
        return (each * (kept * (LEVELS / (LEVELS - self.dropped))).to(x.dtype)).reshape(x.shape)


def counting(network: nn.Module) -> dict[str, CountedDropout]:
    """In the place of each dropout of ``network``, by name, one that counts."""
    dropouts = {name: module for name, module in network.named_modules() if type(module) is nn.Dropout and module.p > 0}
    return {name: CountedDropout(module.p, number) for number, (name, module) in enumerate(dropouts.items())}
