"""A model that is made once and found again: trained with a checkpoint beside it, then kept in a folder."""

from collections.abc import Callable
from pathlib import Path

import torch

from diffcredit.artifacts import atomic_folder
from diffcredit.contributions import Contributions
from diffcredit.diffusion.protocol import DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.training import train


def kept_model(
    folder: Path,
    load: Callable[[Path], DiffusionModel],
    start: Callable[[], DiffusionModel],
    contributions: Contributions,
    settings: Training,
    *,
    seed: int,
    on_step: Callable[[int, int], None],
    device: torch.device | str = "cpu",
) -> DiffusionModel:
    """The model kept in ``folder``, or else ``start()`` trained on all contributions and kept there.

    A training that was cut off goes on from its checkpoint, bit for bit.
    """
    if not folder.exists():
        model = start().to(device)
        data = model.encode(contributions.images, contributions.captions)
        checkpoint = folder.with_name(f"{folder.name}.checkpoint.safetensors")
        train(model, data, settings, seed=seed, checkpoint=checkpoint, on_step=on_step)
        with atomic_folder(folder) as temporary:
            model.save(temporary)
        checkpoint.unlink(missing_ok=True)
    return load(folder).to(device)
