"""Dropout that is a function of a key: the same on every device, in micro-batches, on several GPUs and in fleets.

Which inputs of a sample are dropped follows from the step's key, the number of the dropout layer in the network and the
sample's position in the batch, by the random numbers of :mod:`diffcredit.diffusion.counter_rng`.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from diffcredit.diffusion.counter_rng import as_signed, hash_bits, word_counters
from diffcredit.errors import DiffcreditError
from diffcredit.util.seeds import derive_seed

LEVELS = 2**16  # of the share that is dropped
STRIDE = 2**32  # words of 64 bits between one sample and the next


class CountedDropout(nn.Module):
    """Dropout of ``share``, the ``number``-th of a network. Without ``keys`` it passes everything on. ``keys`` (K,),
    int64, are those of the K models whose samples follow each other in the input."""

    def __init__(self, share: float, number: int) -> None:
        super().__init__()
        self.dropped = round(share * LEVELS)
        self._salt = as_signed(derive_seed("dropout", number) % 2**64)
        self.keys: Tensor | None = None
        self.first = 0  # the position in the batch of the first sample
        self.table: Tensor | None = None  # word counters, if the caller has them

    def forward(self, x: Tensor) -> Tensor:
        if self.keys is None:
            return x
        each = x.reshape(len(self.keys), -1, x[0].numel())  # (K, b, n)
        words = -(-each.shape[2] // 4)  # a word decides on four inputs
        places = range(self.first, self.first + each.shape[1])
        table = word_counters(max(places.stop, words), x.device) if self.table is None else self.table
        if len(table) < max(places.stop, words):
            raise DiffcreditError(f"dropout of {each.shape[2]} numbers of a sample; at most {4 * len(table)} are known")
        samples = table[places.start : places.stop] * STRIDE
        bits = hash_bits((self.keys ^ self._salt)[:, None, None] + samples[:, None] + table[:words])
        levels = torch.stack([(bits >> low) & (LEVELS - 1) for low in (0, 16, 32, 48)], dim=-1)
        kept = levels.flatten(2)[:, :, : each.shape[2]] >= self.dropped
        return (each * (kept * (LEVELS / (LEVELS - self.dropped))).to(x.dtype)).reshape(x.shape)


def counted_dropouts(network: nn.Module) -> dict[str, CountedDropout]:
    """Return a replacement for each plain dropout of ``network``, by name."""
    dropouts = {name: module for name, module in network.named_modules() if type(module) is nn.Dropout and module.p > 0}
    return {name: CountedDropout(module.p, number) for number, (name, module) in enumerate(dropouts.items())}


@contextmanager
def seeded_dropout(network: nn.Module, device: torch.device) -> Generator[Callable[[int, int], None]]:
    """Replace the dropouts of ``network`` within the block; yield ``reseed(key, place)``: the next dropouts follow from
    a step's ``key``, 64 bits as a signed integer, for the samples of the batch from position ``place`` on. So does all
    else that the network draws from torch's global generators, whose states are restored afterwards."""
    replacements = counted_dropouts(network)
    originals = {name: network.get_submodule(name) for name in replacements}
    on_gpu = device.type == "cuda"

    def reseed(key: int, place: int) -> None:
        for dropout in replacements.values():
            dropout.keys, dropout.first = torch.tensor([key], device=device), place
        seed = derive_seed("network", key, place)
        # torch.manual_seed would seed the other GPUs as well
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)

    for name, replacement in replacements.items():
        network.set_submodule(name, replacement)
    try:
        with torch.random.fork_rng(devices=[device] if on_gpu else []):
            yield reseed
    finally:
        for name, original in originals.items():
            network.set_submodule(name, original)
