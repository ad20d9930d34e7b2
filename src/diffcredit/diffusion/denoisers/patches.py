"""Helpers of transformers over patches, such as FLUX: packing, places, shifts, and time that is not rounded."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


def packed(x: Tensor, side: int = 2) -> Tensor:
    """Return the patches of x (m, c, h, w), row by row: (m, h/s · w/s, c · s · s) for ``side`` s."""
    m, c, h, w = x.shape
    patches = x.reshape(m, c, h // side, side, w // side, side).permute(0, 2, 4, 1, 3, 5)
    return patches.reshape(m, (h // side) * (w // side), c * side * side)


def unpacked(patches: Tensor, h: int, w: int, side: int = 2) -> Tensor:
    """Return x (m, c, h, w), given its :func:`packed` patches."""
    m, _, width = patches.shape
    c = width // side**2
    x = patches.reshape(m, h // side, w // side, c, side, side).permute(0, 3, 1, 4, 2, 5)
    return x.reshape(m, c, h, w)


def places(h: int, w: int, device: torch.device, before: int, after: int = 0) -> Tensor:
    """Return the row and column (h · w, before + 2 + after) of each patch, among coordinates of zero."""
    grid = torch.cartesian_prod(torch.arange(h, device=device), torch.arange(w, device=device))
    return functional.pad(grid, (before, after))


def rounds(x: Tensor) -> bool:
    """Return whether a network computes in less than float32, given what it is called with."""
    # there is no autocast for tensors without numbers
    return x.dtype != torch.float32 or (x.device.type != "meta" and torch.is_autocast_enabled(x.device.type))


@contextmanager
def first_input(module: nn.Module, value: Tensor) -> Generator[None]:
    """Call ``module`` with ``value`` in place of its first input.

    FLUX rounds time to the type of its hidden states before it is embedded; in bfloat16, neighbouring steps become the
    same. Not for two threads that share a network.
    """
    handle = module.register_forward_pre_hook(lambda _, inputs: (value, *inputs[1:]))
    try:
        yield
    finally:
        handle.remove()


def dynamic_shift(config: Mapping[str, Any], tokens: int) -> float:
    """Return μ of dynamic shifting, which grows linearly with the number of image ``tokens`` (Esser et al. 2024)."""
    slope = (config["max_shift"] - config["base_shift"]) / (config["max_image_seq_len"] - config["base_image_seq_len"])
    return tokens * slope + config["base_shift"] - slope * config["base_image_seq_len"]


def even_sigmas(steps: int) -> list[float]:
    """Return 1, …, 1/n: the σ before any shift at which FLUX samples."""
    return np.linspace(1.0, 1 / steps, steps).tolist()
