"""Random numbers by counting: number i of a key is a function of (key, i) alone, the same bit for bit on every device,
in any order and any number of them at once.

SplitMix64 (Steele, Lea and Flood 2014) turns a counter into 64 random bits. Of a normal number they are four numbers of
16 bits, each the place of a quantile in a table of the normal distribution. The sum of two over √2 is a normal number,
of which there are 2³² and the largest is 5.9: only a table, an addition and no function whose last bit depends on the
device.
"""

import math
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def words(key: int | NDArray[np.uint64], places: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The 64 random bits of ``key`` at each of ``places``; keys and places are broadcast."""
    bits = (places + np.uint64(1)) * np.uint64(_GAMMA)
    bits = bits + (np.uint64(key % 2**64) if isinstance(key, int) else key)
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(_FIRST)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(_SECOND)
    bits ^= bits >> np.uint64(31)
    return bits


def normals(key: int, count: int) -> Tensor:
    """The first ``count`` normal numbers of ``key``, (count,) float32 on the CPU."""
    bits = words(key, np.arange(-(-count // 2), dtype=np.uint64))
    halves = _table().take(bits.astype("<u8", copy=False).view("<u2")).reshape(-1, 2)
    return torch.from_numpy(halves[:, 0] + halves[:, 1])[:count]


def normals_of(keys: Tensor, counters: Tensor, table: Tensor) -> Tensor:
    """The first normal numbers of each of ``keys`` (k,) int64, whose bits are the key's: two for each of ``counters``
    (c,), (k, 2·c) float32 on their device, where ``table`` is :func:`quantiles`. Computes as :func:`normals` does, with
    signed words."""
    bits = hashed(counters + keys[:, None])
    first, second = (table[(bits >> low) & 0xFFFF] + table[(bits >> low + 16) & 0xFFFF] for low in (0, 32))
    return torch.stack([first, second], dim=-1).flatten(1)


def hashed(bits: Tensor) -> Tensor:
    """The random bits of keys plus counters, int64."""
    bits = (bits ^ _shifted(bits, 30)) * signed(_FIRST)
    bits = (bits ^ _shifted(bits, 27)) * signed(_SECOND)
    return bits ^ _shifted(bits, 31)


def counters(count: int, device: torch.device) -> Tensor:
    """Of the first ``count`` normal numbers, (⌈count/2⌉,)."""
    return counted(-(-count // 2), device)


def counted(words: int, device: torch.device) -> Tensor:
    """What the places of the first ``words`` words of 64 bits add to a key, (words,). Kept where a compiler sees them,
    since it takes an index for 32 bits wide."""
    return torch.arange(1, words + 1, device=device) * signed(_GAMMA)


def quantiles(device: torch.device) -> Tensor:
    """What normal numbers are looked up in, (2¹⁶,)."""
    return torch.from_numpy(_table()).to(device)


@cache
def _table() -> NDArray[np.float32]:
    """The quantiles (2 i + 1) / 2¹⁷ of the normal distribution for i = 0, …, 2¹⁶ − 1, with mean 0 and variance ½."""
    from scipy.special import ndtri

    half = ndtri((2 * np.arange(2**15, 2**16) + 1) / 2**17)  # both halves alike, so that the mean is 0 exactly
    both = np.concatenate([-half[::-1], half])
    return (both / (math.sqrt(2) * both.std())).astype(np.float32)


def signed(word: int) -> int:
    """The 64-bit integer with the same bits."""
    return word - 2**64 if word >= 2**63 else word


def _shifted(bits: Tensor, by: int) -> Tensor:
    """The bits moved down, zeros from above; torch's own shift repeats the sign."""
    return (bits >> by) & ((1 << 64 - by) - 1)
