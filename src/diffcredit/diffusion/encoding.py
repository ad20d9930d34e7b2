"""Training images encoded for a model; latents of an autoencoder are cached."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from diffcredit.contributions import Contributions
from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.errors import UserError
from diffcredit.util.artifacts import atomic_file, fingerprint
from diffcredit.util.progress import Progress, silent


def encoded(
    model: DiffusionModel,
    contributions: Contributions,
    folder: Path,
    *,
    mirrored: bool = True,
    progress: Progress = silent,
) -> Batch:
    """Return all contributions, encoded, on the model's device. Where that takes more than arithmetic, they are cached
    in ``folder``, in a file named by the fingerprints of the images and of the autoencoder."""
    if not model.encoding:
        return model.encode(contributions.images, contributions.captions, mirrored=mirrored)
    identity = fingerprint([model.encoding, contributions.fingerprint, mirrored])
    file = folder / f"latents-{identity[:12]}.safetensors"
    if not file.exists():
        batch = model.encode(
            contributions.images,
            contributions.captions,
            mirrored=mirrored,
            on_image=lambda done, total: progress("encoding images", done, total),
        )
        tensors = {name: tensor for name, tensor in vars(batch).items() if tensor is not None}
        if not mirrored:
            del tensors["flipped"]
        with atomic_file(file) as temporary:
            save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, temporary)
    try:
        tensors = load_file(file, device=str(model.device))
        return Batch(
            tensors["x"],
            tensors.get("flipped", tensors["x"]),
            tensors["rows"].cpu(),
            tensors.get("conditions"),
            tensors.get("condition_of"),
        )
    except (SafetensorError, KeyError) as error:
        raise UserError(f"{file}: not encoded images ({error}); remove it to encode them anew") from None
