"""What a training step sees: its images, mirrorings, time steps and noises, from (seed, step) alone."""

import torch
from torch import Tensor

from diffcredit.diffusion.protocol import Batch
from diffcredit.diffusion.settings import Training
from diffcredit.seeds import derive_seed


def draw(data: Batch, step: int, settings: Training, seed: int, time_steps: int) -> tuple[Batch, Tensor, Tensor]:
    """Step ``step``'s batch, time steps (b,) and noises (b, c, h, w), from (seed, step) alone.

    Images come in epochs of random order; a batch may reach over into the next (a
    coalition smaller than a batch: into several).
    """
    size, total = settings.batch_size, len(data)
    first, offset = divmod(step * size, total)
    epochs = range(first, ((step + 1) * size - 1) // total + 1)
    index = torch.cat([_order(data.rows, seed, epoch) for epoch in epochs])[offset : offset + size]
    generator = torch.Generator().manual_seed(derive_seed(seed, "step", step))
    t = _time_steps(size, time_steps, generator)
    noise = torch.randn((size, *data.x.shape[1:]), generator=generator)
    flip = torch.rand(size, generator=generator) < 0.5
    batch = data.select(index, flip if settings.flip else None)
    # a copy that does not block leaves the host free to prepare the next step while the device works on this one
    return batch, t.to(data.x.device, non_blocking=True), noise.to(data.x.device, non_blocking=True)


def _time_steps(size: int, time_steps: int, generator: torch.Generator) -> Tensor:
    """(size,): each uniform on 0..T−1, one from each of ``size`` equal strata, in random order.

    The loss and its gradient vary more over time steps than over images; covering them evenly in every batch
    makes the gradient less noisy at no cost.
    """
    strata = torch.randperm(size, generator=generator) + torch.rand(size, generator=generator, dtype=torch.float64)
    return (strata * (time_steps / size)).long().clamp_(max=time_steps - 1)


def _order(rows: Tensor, seed: int, epoch: int) -> Tensor:
    """The epoch's order of the images ``rows`` (m,): one random order of all images, restricted to these."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "epoch", epoch))
    keys = torch.rand(int(rows.max()) + 1, generator=generator, dtype=torch.float64)
    return keys[rows].argsort()
