"""A model and images small enough that a training takes moments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.model import DiffusionModel, Images
from diffcredit.errors import UserError

SIDE = 8
CONFIG: dict[str, Any] = {
    "sample_size": SIDE,
    "in_channels": 3,
    "out_channels": 3,
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "attention_head_dim": 8,
}
"""A U-Net with attention."""


def model(seed: int = 0) -> DDPM:
    return DDPM.create("tiny", SIDE, seed)


def images(count: int, seed: int = 0) -> Images:
    return np.random.default_rng(seed).integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)


def weights(trained: DiffusionModel) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in trained.network.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Bitwise."""
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


def nearly_equal(one: Images, other: Images) -> bool:
    """Alike but for a rounding here and there: a convolution may sum in another order for another batch."""
    difference = np.abs(one.astype(int) - other.astype(int))
    return bool(difference.max() <= 1 and (difference > 0).mean() < 0.01)


def refused(message: str, what: Callable[..., object], *arguments: Any) -> None:
    """In one line, as the user reads it."""
    with pytest.raises(UserError, match=message) as raised:
        what(*arguments)
    assert "\n" not in str(raised.value)


class PowerCut(Exception):
    pass


def cut_at(step: int | None) -> Callable[[int, int], None]:
    def on_step(done: int, total: int) -> None:
        if done == step:
            raise PowerCut

    return on_step
