"""One training loop for every purpose: the base model, recovery after pruning, a coalition's fine-tuning.

    model = DDPM.create("tiny", 16, seed=0)
    data = model.encode(images)  # uint8 (m, 16, 16, 3)
    train(model, data, Training(steps=1000, batch_size=64), seed=1)

The images, mirrorings, time steps, noises and dropout of step k follow from (seed, k) alone. An interrupted run
therefore continues bit for bit, and two coalitions trained with one seed see the same noises. On a GPU, long trainings
take the fast path (:mod:`diffcredit.diffusion.fast`), which gives the same result but for rounding.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from diffcredit.contributions import Contributions
from diffcredit.diffusion.fast.eligibility import give_up, trains_fast
from diffcredit.diffusion.fast.fleet import fleet_for, plan_among, train_fleet
from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.diffusion.session import current_session
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.stepwise import TrainingDiverged, diverged, train_stepwise
from diffcredit.errors import UserError
from diffcredit.util.artifacts import AlreadyThere, atomic_file, atomic_folder, fingerprint
from diffcredit.util.progress import Progress

__all__ = ["TrainingDiverged", "encoded", "kept_model", "train", "train_each"]

WORTHWHILE = 1000  # steps; a single shorter training ends before it would be compiled


def train(
    model: DiffusionModel,
    data: Batch,
    settings: Training,
    *,
    seed: int,
    checkpoint: Path | None = None,
    on_step: Callable[[int, int], None] | None = None,
    on_batch: Callable[[int, Batch, Tensor, Tensor], None] | None = None,
    ascend: bool = False,
) -> None:
    """Train the parameters of ``model.network`` that require gradients on ``data``, in place.

    The denoising loss is minimised, or maximised if ``ascend``; :class:`Training` describes a step. With a
    ``checkpoint`` file the run is saved every few seconds and on Ctrl-C, and continues from the file bit for bit; the
    caller removes it once the result is saved. ``on_step(done, total)`` reports progress. ``on_batch(step, batch, t,
    noise)`` is called before each step and must not change the model. Where ``torch.distributed`` is initialised, all
    its processes call this in the same way and train together; the first one writes the checkpoint and reports. Raises
    TrainingDiverged.
    """
    if on_batch is None and settings.steps >= WORTHWHILE and trains_fast(model, settings, data):
        identity, places = [seed, len(data), ascend], [torch.arange(len(data))]
        options: dict[str, Any] = {"checkpoint": checkpoint, "identity": identity, "on_step": on_step}
        errors = _as_fleet([model], data, places, settings, [seed], 1, ascend=ascend, **options)
        if errors is not None:
            if errors[0] is not None:
                raise errors[0]
            return
    train_stepwise(
        model, data, settings, seed=seed, checkpoint=checkpoint, on_step=on_step, on_batch=on_batch, ascend=ascend
    )


def train_each(
    models: Sequence[DiffusionModel],
    data: Batch,
    places: Sequence[Tensor],
    settings: Training,
    *,
    seeds: Sequence[int],
    at_once: int = 1,
    on_step: Callable[[int, int], None] | None = None,
) -> list[TrainingDiverged | None]:
    """Train each of ``models``, all of one architecture, as :func:`train` does, on its images: those of ``data`` at its
    ``places`` (m,). Return for each None or its error. On a GPU ``at_once`` of them are trained together, as one fleet.
    ``on_step(done, total)`` counts the steps of all models."""
    found: list[TrainingDiverged | None] = []

    def progress(count: int) -> Callable[[int, int], None] | None:
        if on_step is None:
            return None
        return lambda done, steps: on_step(len(found) * steps + count * done, len(models) * steps)

    for first in range(0, len(models), at_once):
        some = slice(first, first + at_once)
        group = models[some]
        errors = None
        if trains_fast(group[0], settings, data):
            errors = _as_fleet(group, data, places[some], settings, seeds[some], at_once, on_step=progress(len(group)))
        if errors is not None:
            found += errors
            continue
        for model, where, seed in zip(group, places[some], seeds[some], strict=True):
            try:
                train(model, data.select(where), settings, seed=seed, on_step=progress(1))
                found.append(None)
            except TrainingDiverged as error:
                found.append(error)
    return found


def _as_fleet(
    models: Sequence[Any],
    data: Batch,
    places: Sequence[Tensor],
    settings: Training,
    seeds: Sequence[int],
    at_once: int,
    *,
    ascend: bool = False,
    **options: Any,
) -> list[TrainingDiverged | None] | None:
    """Train ``models`` as one fleet; return each one's error or None. If that fails, return None, models unchanged."""
    session = current_session()
    try:
        plans = [plan_among(data, where, settings, seed, models[0]) for where, seed in zip(places, seeds, strict=True)]
        fleet = fleet_for(session, models[0], data, settings, at_once, ascend=ascend)
        fleet.load(models, plans)
    except torch.OutOfMemoryError:
        if len(models) > 1:
            raise  # fewer models at once may fit
        session.release_fleet()
        return None  # micro-batches may fit
    except Exception as error:  # compilers may fail in any way
        give_up(session, "training", error)
        session.release_fleet()
        return None
    complaints = train_fleet(session, fleet, models, **options)
    return [None if each is None else diverged(each, settings) for each in complaints]


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
        tensors = {"x": batch.x, "flipped": batch.flipped} if mirrored else {"x": batch.x}
        with atomic_file(file) as temporary:
            save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, temporary)
        return batch
    try:
        tensors = load_file(file, device=str(model.device))
        x = tensors["x"]
    except (SafetensorError, KeyError) as error:
        raise UserError(f"{file}: not encoded images ({error}); remove it to encode them anew") from None
    conditions = model.conditions(contributions.captions, len(x))
    return Batch(x, tensors.get("flipped", x), torch.arange(len(x)), *conditions)


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
