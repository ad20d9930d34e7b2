"""The bytes that training, sampling and encoding need beside weights, counted on models without numbers."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from diffcredit.diffusion.conditions import Conditions, joined
from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.first_stage import FirstStage, at_once
from diffcredit.diffusion.memory.live_bytes import LiveBytes
from diffcredit.diffusion.memory.outlines import EMPTY, batch_of, emptied
from diffcredit.diffusion.objectives import NoiseSchedule
from diffcredit.diffusion.pretrained import convert
from diffcredit.diffusion.stepwise import gradient_checkpointing


def activation_bytes(outline: DiffusersModel, condition: Conditions, size: int, *, twice: bool = False) -> int:
    """Return the most bytes that the gradient of ``size`` images needs at once, without the gradient itself. With
    ``twice`` activations are computed a second time instead of kept."""
    network = outline.network
    weights = [each for each in network.parameters() if each.requires_grad]

    def step() -> None:
        x, noisy, target = (torch.empty(size, *outline.shape, device=EMPTY) for _ in range(3))
        prediction = outline.call(noisy, _times(outline, size), batch_of(condition, size))
        loss = (prediction.to(x.dtype) - target).square().mean()
        torch.autograd.grad(loss, weights, allow_unused=True)

    with gradient_checkpointing(network, twice):
        whole = _most(step)
    return max(0, whole - sum(each.nbytes for each in weights))


def sampling_bytes(outline: DiffusersModel, condition: Conditions, size: int, *, guided: bool) -> int:
    """Return the most bytes that a step of sampling ``size`` images needs at once, with their conditions."""

    def step() -> None:
        x, given = torch.empty(size, *outline.shape, device=EMPTY), batch_of(condition, size)
        with torch.no_grad():
            if not guided:
                outline.call(x, _times(outline, size), given)
                return
            both = joined(given, given)
            outline.call(torch.cat([x, x]), _times(outline, 2 * size), both)

    return _most(step)


def stage_bytes(outline: DiffusersModel, size: int) -> tuple[int, int, int]:
    """Return the bytes of the autoencoder's weights, and the most that encoding and decoding ``size`` images need at
    once beside them; nothing for models of pixels."""
    if not isinstance(outline.stage, FirstStage):
        return 0, 0, 0
    stage: Any = copy.copy(outline.stage)
    stage.autoencoder = emptied(outline.stage.autoencoder)
    few, side = min(size, at_once(outline.pixels)), outline.pixels

    @torch.no_grad()
    def encode() -> None:
        stage.latents_of(torch.empty(few, 3, side, side, device=EMPTY))

    @torch.no_grad()
    def decode() -> None:
        stage.images_of(torch.empty(few, *outline.shape, device=EMPTY))

    return weight_bytes(stage.autoencoder), _most(encode), _most(decode)


def in_bf16(outline: DiffusersModel) -> DiffusersModel:
    """Return ``outline`` with a network that computes in bf16."""
    other = copy.copy(outline)
    other.network = convert(emptied(outline.network), torch.bfloat16)
    other.computes = torch.bfloat16
    return other


def weight_bytes(network: nn.Module) -> int:
    """Return the bytes of all parameters and buffers."""
    return sum(each.nbytes for each in [*network.parameters(), *network.buffers()])


def _times(outline: DiffusersModel, size: int) -> torch.Tensor:
    whole = isinstance(outline.objective, NoiseSchedule)
    return torch.empty(size, dtype=torch.long if whole else torch.float32, device=EMPTY)


def _most(work: Callable[[], None]) -> int:
    """Return the most bytes alive at once during ``work``, without those of tables that it leaves behind."""
    with LiveBytes() as live:
        work()
    return live.peak - live.now
