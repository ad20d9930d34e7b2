"""A cached model: trained once, with a checkpoint beside it, then saved in a folder."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch

from diffcredit.contributions import Contributions
from diffcredit.diffusion.encoding import encoded
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.training import train
from diffcredit.util.artifacts import AlreadyThere, atomic_folder
from diffcredit.util.progress import Progress


def kept_model(
    folder: Path,
    load: Callable[[Path], DiffusionModel],
    start: Callable[[], DiffusionModel],
    contributions: Contributions,
    settings: Training,
    *,
    seed: int,
    what: str,
    progress: Progress,
    device: torch.device | str = "cpu",
) -> DiffusionModel:
    """Return the model in ``folder``, or train ``start()`` on all contributions and save it there.

    An interrupted training continues from its checkpoint, bit for bit. ``what`` names the training in ``progress``.
    """
    if not folder.exists():
        model = start().to(device)
        data = encoded(model, contributions, folder.parent, mirrored=settings.flip, progress=progress)
        checkpoint = folder.with_name(f"{folder.name}.checkpoint.safetensors")
        train(model, data, settings, seed=seed, checkpoint=checkpoint, on_step=partial(progress, what))
        # another process of the study may have saved the same model meanwhile
        with suppress(AlreadyThere), atomic_folder(folder) as temporary:
            model.save(temporary)
        checkpoint.unlink(missing_ok=True)
    return load(folder).to(device)
