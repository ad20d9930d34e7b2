"""What is computed once and kept in a folder: training images as a model sees them, and trained models."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from diffcredit.contributions import Contributions
from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.training import train
from diffcredit.errors import UserError
from diffcredit.util.artifacts import AlreadyThere, atomic_file, atomic_folder, fingerprint
from diffcredit.util.progress import Progress


def encoded(
    model: DiffusionModel, contributions: Contributions, folder: Path, *, mirrored: bool, progress: Progress
) -> Batch:
    """Return all contributions, encoded, on the model's device. Where that takes more than arithmetic, they are cached
    in ``folder``, in a file named by the fingerprints of the images and of the autoencoder."""
    encode = partial(model.encode, contributions.images, contributions.captions, mirrored=mirrored)
    if not model.encoding:
        return encode()
    identity = fingerprint([model.encoding, contributions.fingerprint, mirrored])
    file = folder / f"latents-{identity[:12]}.safetensors"
    if not file.exists():
        batch = encode(on_image=partial(progress, "encoding images"))
        tensors = {name: tensor.cpu().contiguous() for name, tensor in vars(batch).items() if tensor is not None}
        if not mirrored:
            del tensors["flipped"]
        with atomic_file(file) as temporary:
            save_file(tensors, temporary)
    try:
        tensors = load_file(file, device=str(model.device))
        rows, x = tensors.pop("rows").cpu(), tensors["x"]
        return Batch(**{"flipped": x, **tensors, "rows": rows})
    except (SafetensorError, KeyError, TypeError) as error:
        raise UserError(f"{file}: not encoded images ({error}); remove it to encode them anew") from None


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
    """Return the model in ``folder``, or train ``start()`` on all contributions and save it there. An interrupted
    training continues from its checkpoint, bit for bit. ``what`` names the training in ``progress``."""
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
