"""A random projection that is never stored: its signs are computed from their places."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from diffcredit.baselines.gradients.per_image import by_device
from diffcredit.util.seeds import derive_seed

WORD = 64  # signs from one hash word
# Signs in memory at a time: as many as fit a CPU's cache, or keep a GPU busy. They change rounding only.
SIGNS_AT_ONCE = {"cpu": 2**20, "cuda": 2**27}

# SplitMix64 (Steele, Lea and Flood 2014), its 64-bit numbers in two's complement as torch has them
_GAMMA, _FIRST, _SECOND = (number - 2**64 for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def project(gradients: Tensor, dimensions: int, seed: int, on_part: Callable[[int, int], None] | None = None) -> Tensor:
    """Return G R / √k: rows (b, P) projected to (b, k), in float32 on the rows' device; k = ``dimensions``.

    R (P, k) has independent signs ±1 derived from ``seed`` and their places, the same on every device. Inner products
    are kept on average (Johnson and Lindenstrauss 1984; Achlioptas 2003): E ⟨xR, yR⟩/k = ⟨x, y⟩ with variance
    (‖x‖²‖y‖² + ⟨x, y⟩² − 2 Σ_p x_p² y_p²) / k. ``on_part(done, total)`` counts the parameters gone through.
    """
    rows, parameters = gradients.shape
    blocks = max(1, by_device(SIGNS_AT_ONCE, gradients.device) // (dimensions * WORD))
    seeds = sign_seeds(dimensions, seed, gradients.device)
    total = torch.zeros(rows, dimensions, dtype=torch.float32, device=gradients.device)
    for first in range(0, math.ceil(parameters / WORD), blocks):
        part = gradients[:, first * WORD : (first + blocks) * WORD].float()
        block = signs(seeds, first, math.ceil(part.shape[1] / WORD))
        total.addmm_(part, block[:, : part.shape[1]].T)
        if on_part is not None:
            on_part(min((first + blocks) * WORD, parameters), parameters)
    return total / math.sqrt(dimensions)


def sign_seeds(dimensions: int, seed: int, device: torch.device | str = "cpu") -> Tensor:
    """Return (k,) int64: the seed of each row of Rᵀ, a number of the SplitMix64 sequence of R's ``seed``."""
    return splitmix64(torch.tensor(derive_seed("projection", seed), device=device), 0, dimensions)


def signs(seeds: Tensor, first: int, blocks: int) -> Tensor:
    """Return (k, 64·blocks) in float32: Rᵀ (k, P) for the parameters from 64·first on.

    Each row is a SplitMix64 sequence of its own; bit i of its number b is the sign of parameter 64·b + i.
    """
    octets = splitmix64(seeds[:, None], first, blocks).view(torch.uint8)  # lowest first wherever torch runs
    places = torch.arange(8, device=seeds.device)
    if octets.is_cuda:  # there 12 times as fast as the table, on a CPU 4 times as slow
        found = torch.where(octets[..., None] & (2**places).to(torch.uint8) != 0, 1.0, -1.0)
    else:
        of_bytes = 2 * (torch.arange(256)[:, None] >> places & 1) - 1
        found = torch.nn.functional.embedding(octets.int(), of_bytes.float())
    return found.view(len(seeds), WORD * blocks)


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
