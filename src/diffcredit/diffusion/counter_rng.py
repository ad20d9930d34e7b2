"""A counter-based random number generator: number i of a key is a function of (key, i) alone.

It is the same bit for bit on every device, in any order and in pieces of any size. SplitMix64 (Steele, Lea and Flood
2014) turns a counter into 64 random bits. They make two normal numbers: each adds two entries, chosen by 16 bits each,
of a table of normal quantiles scaled by 1/√2. There are 2³² such numbers, the largest is 5.9. A table and an addition
suffice; no function is used whose last bit depends on the device.
"""

import math
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def words(key: int | NDArray[np.uint64], places: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the 64 random bits of ``key`` at each of ``places``; keys and places are broadcast."""
    bits = (places + np.uint64(1)) * np.uint64(_GAMMA)
    bits = bits + (np.uint64(key % 2**64) if isinstance(key, int) else key)
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(_FIRST)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(_SECOND)
    bits ^= bits >> np.uint64(31)
    return bits


def normals(key: int, count: int) -> Tensor:
    """Return the first ``count`` normal numbers of ``key``, (count,) float32 on the CPU."""
    bits = words(key, np.arange(-(-count // 2), dtype=np.uint64))
    halves = _table().take(bits.astype("<u8", copy=False).view("<u2")).reshape(-1, 2)
    return torch.from_numpy(halves[:, 0] + halves[:, 1])[:count]


def normals_of(keys: Tensor, counters: Tensor, table: Tensor) -> Tensor:
    """Return the first normal numbers of each of ``keys`` (k,), 64 bits as int64: two for each of ``counters`` (c,),
    hence (k, 2·c) float32 on their device. ``table`` is :func:`quantiles`. The numbers are those of :func:`normals`."""
    bits = hash_bits(counters + keys[:, None])
    first, second = (table[(bits >> low) & 0xFFFF] + table[(bits >> low + 16) & 0xFFFF] for low in (0, 32))
    return torch.stack([first, second], dim=-1).flatten(1)


def hash_bits(bits: Tensor) -> Tensor:
    """Return the random bits of keys plus counters, int64."""
    bits = (bits ^ _shifted(bits, 30)) * as_signed(_FIRST)
    bits = (bits ^ _shifted(bits, 27)) * as_signed(_SECOND)
    return bits ^ _shifted(bits, 31)


def normal_counters(count: int, device: torch.device) -> Tensor:
    """Return the counters of the first ``count`` normal numbers, (⌈count/2⌉,)."""
    return word_counters(-(-count // 2), device)


def word_counters(words: int, device: torch.device) -> Tensor:
    """Return what the positions of the first ``words`` words of 64 bits add to a key, (words,). Compiled functions are
    given this table, since compilers take an index to be 32 bits wide."""
    return torch.arange(1, words + 1, device=device) * as_signed(_GAMMA)


def quantiles(device: torch.device) -> Tensor:
    """Return the table of quantiles on ``device``, (2¹⁶,)."""
    return torch.from_numpy(_table()).to(device)


@cache
def _table() -> NDArray[np.float32]:
    """The quantiles (2 i + 1) / 2¹⁷ of the normal distribution for i = 0, …, 2¹⁶ − 1, with mean 0 and variance ½."""
    from scipy.special import ndtri

    half = ndtri((2 * np.arange(2**15, 2**16) + 1) / 2**17)  # symmetric, so that the mean is exactly 0
    both = np.concatenate([-half[::-1], half])
    return (both / (math.sqrt(2) * both.std())).astype(np.float32)


def as_signed(word: int) -> int:
    """Return the signed 64-bit integer with the same bits."""
    return word - 2**64 if word >= 2**63 else word


def _shifted(bits: Tensor, by: int) -> Tensor:
    """Shift the bits down, with zeros from above; torch's own shift repeats the sign."""
    return (bits >> by) & ((1 << 64 - by) - 1)
