"""A random projection that is never stored: its signs are computed from their places."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from diffcredit.errors import UserError
from diffcredit.util.seeds import derive_seed

WORD = 64  # signs from one hash word
# Signs in memory at a time: as many as fit a CPU's cache, or keep a GPU busy. They change rounding only.
SIGNS_AT_ONCE = {"cpu": 2**20, "cuda": 2**27}

# SplitMix64 (Steele, Lea and Flood 2014), its 64-bit numbers in two's complement as torch has them
_GAMMA, _FIRST, _SECOND = (number - 2**64 for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def check_dimensions(dimensions: int, parameters: int) -> None:
    """Refuse a projection to more dimensions than there are parameters."""
    if dimensions > parameters:
        raise UserError(
            f"dimensions: {dimensions}, but gradients have {parameters} entries, one for each parameter; fewer "
            "dimensions are accepted"
        )


def project(
    gradients: Tensor,
    dimensions: int,
    seed: int,
    signs_at_once: int | None = None,
    on_part: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Return G R / √k: rows (b, P) projected to (b, k), in float32 on the rows' device; k = ``dimensions``.

    R (P, k) has independent signs ±1 derived from ``seed`` and their places, the same on every device. Inner products
    are kept on average (Johnson and Lindenstrauss 1984; Achlioptas 2003): E ⟨xR, yR⟩/k = ⟨x, y⟩ with variance
    (‖x‖²‖y‖² + ⟨x, y⟩² − 2 Σ_p x_p² y_p²) / k. ``on_part(done, total)`` counts the parameters gone through.
    """
    rows, parameters = gradients.shape
    check_dimensions(dimensions, parameters)
    at_once = signs_at_once or SIGNS_AT_ONCE.get(gradients.device.type, SIGNS_AT_ONCE["cpu"])
    blocks = max(1, at_once // (dimensions * WORD))
    signs = Signs.of(dimensions, seed, gradients.device)
    total = torch.zeros(rows, dimensions, dtype=torch.float32, device=gradients.device)
    for first in range(0, math.ceil(parameters / WORD), blocks):
        part = gradients[:, first * WORD : (first + blocks) * WORD].float()
        block = signs.block(first, math.ceil(part.shape[1] / WORD))
        total.addmm_(part, block[:, : part.shape[1]].T)
        if on_part is not None:
            on_part(min((first + blocks) * WORD, parameters), parameters)
    return total / math.sqrt(dimensions)


@dataclass(frozen=True, eq=False)
class Signs:
    """Rᵀ (k, P), computed on demand.

    Each row is a SplitMix64 sequence of its own, whose seed is a number of the sequence of R's seed; bit i of its
    number b is the sign of parameter 64·b + i.
    """

    seeds: Tensor
    """(k,) int64."""
    of_bytes: Tensor
    """(256, 8): the signs of each byte's bits, lowest first."""
    bits: Tensor
    """(8,) uint8: 1, 2, …, 128."""

    @classmethod
    def of(cls, dimensions: int, seed: int, device: torch.device | str = "cpu") -> Self:
        seeds = splitmix64(torch.tensor(derive_seed("projection", seed), device=device), 0, dimensions)
        places = torch.arange(8, device=device)
        of_bytes = 2 * (torch.arange(256, device=device)[:, None] >> places & 1) - 1
        return cls(seeds, of_bytes.float(), (2**places).to(torch.uint8))

    def block(self, first: int, blocks: int) -> Tensor:
        """Return (k, 64·blocks) in float32, for the parameters from 64·first on."""
        words = splitmix64(self.seeds[:, None], first, blocks)
        octets = words.view(torch.uint8)  # eight for each word, lowest first on every machine that torch runs on
        if octets.is_cuda:  # there 12 times as fast as the table, on a CPU 4 times as slow
            signs = torch.where(octets[..., None] & self.bits != 0, 1.0, -1.0)
        else:
            signs = torch.nn.functional.embedding(octets.int(), self.of_bytes)
        return signs.view(len(words), WORD * blocks)


def splitmix64(seed: Tensor, first: int, count: int) -> Tensor:
    """Return (…, count) int64: the numbers first, …, first + count − 1 of SplitMix64 from each ``seed`` (…) int64."""
    places = torch.arange(first + 1, first + count + 1, device=seed.device)
    z = seed + places * _GAMMA
    z = (z ^ _shifted(z, 30)) * _FIRST
    z = (z ^ _shifted(z, 27)) * _SECOND
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, by: int) -> Tensor:
    """Return z >> by without torch's sign extension."""
    return (z >> by) & (2 ** (64 - by) - 1)
