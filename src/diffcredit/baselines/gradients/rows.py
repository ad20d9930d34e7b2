"""The rows of Φ, each image's gradient, randomly projected, and the errors of training images, cached on disk."""

import dataclasses
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffcredit.baselines.base import Evidence
from diffcredit.baselines.gradients import DIMENSIONS, GradientSettings
from diffcredit.baselines.gradients.per_image import PerImage, Samples, by_device, digests, noises, time_steps
from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.micro_batches import in_smaller_batches
from diffcredit.diffusion.model import DiffusionModel, Images
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import DiffcreditError, UserError, located
from diffcredit.util.arrays import FloatArray
from diffcredit.util.artifacts import AlreadyThere, atomic_folder, fingerprint
from diffcredit.util.cache import cached_arrays
from diffcredit.util.seeds import derive_seed

Rows = NDArray[np.float32]

# Gradients that are projected together, with signs computed once, and the memory they may take.
TOGETHER = 256
CPU_BYTES = 2**30
GPU_SHARE = 4  # a quarter of the free memory
# Images that go through the network at once where only their losses are taken.
IMAGES_AT_ONCE = {"cpu": 16, "cuda": 256}
WORD = 64  # signs from one hash word
# Signs in memory at a time: as many as fit a CPU's cache, or keep a GPU busy. They change rounding only.
SIGNS_AT_ONCE = {"cpu": 2**20, "cuda": 2**27}

# SplitMix64 (Steele, Lea and Flood 2014), its 64-bit numbers in two's complement as torch has them
_GAMMA, _FIRST, _SECOND = (number - 2**64 for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def gradient_rows(
    evidence: Evidence,
    settings: GradientSettings,
    of: Literal["training", "generated"],
    method: str,
    replicate: int = 0,
) -> Rows:
    """Return (m, k), memory-mapped: row i is the projected gradient of training or generated image i.

    It is taken in the base model or in another ``replicate`` of it. A row depends only on the model, the settings, its
    image and, for a text model, the caption or prompt: not on the order of the images or on how many are computed
    together. Rows are kept in the evidence's folder, or a temporary one, where an interrupted run continues.
    """
    if of == "generated":
        evidence.queries(method)  # a refusal comes before any work
    model = evidence.model(method, replicate)
    per_image, dimensions = per_image_gradients(model, settings, method)
    settings = dataclasses.replace(settings, dimensions=dimensions)  # so that chosen and default dimensions share rows
    subjects = _subjects(evidence, settings, of, method)
    identity = fingerprint(
        ["rows", model.fingerprint, list(per_image.parameters), dataclasses.asdict(settings), subjects.identity(model)]
    )
    # a temporary folder's files exist as long as they are mapped
    with TemporaryDirectory(ignore_cleanup_errors=True) as temporary, located(method):
        folder = (evidence.folder or Path(temporary)) / f"gradients-{identity[:16]}"
        kept = Kept.open(folder, len(subjects.images), dimensions)
        missing = np.flatnonzero(kept.done == 0)
        done = len(subjects.images) - len(missing)

        def on_image() -> None:
            nonlocal done
            done += 1
            evidence.progress(f"{method}: gradients of {of} images", done, len(subjects.images))

        def on_part(parameters: int, total: int) -> None:
            images = done - len(places) + len(places) * parameters // total
            evidence.progress(f"{method}: projecting gradients of {of} images", images, len(subjects.images))

        for places in _chunks(missing, per_image):
            gradients = _gradients(per_image, subjects, places, on_image)
            rows = project(gradients, dimensions, settings.seed, on_part=on_part).cpu().numpy()
            if not np.isfinite(rows).all():
                worst = places[int(np.argmin(np.isfinite(rows).all(axis=1)))]
                raise DiffcreditError(f"the gradient of {subjects.names[worst]} is not a finite number")
            kept.write(places, rows)
        return kept.rows


def per_image_gradients(model: DiffusionModel, settings: GradientSettings, method: str) -> tuple[PerImage, int]:
    """Return what computes the gradients of single images, and the dimensions that they are projected to; refuse
    ``method`` where the model's parameters are too few."""
    with located(method):
        per_image = PerImage(model, settings)
        dimensions = settings.dimensions or min(DIMENSIONS, per_image.size)
        if dimensions > per_image.size:
            raise UserError(
                f"dimensions: {dimensions}, but gradients have {per_image.size} entries, one for each parameter; fewer "
                "dimensions are accepted"
            )
    return per_image, dimensions


@dataclass(frozen=True, eq=False)
class Subjects:
    """The images whose gradients are taken, with their captions and names. ``journey``: the base model from which
    generated images were sampled, and how."""

    images: Images
    captions: tuple[str, ...] | None
    names: Sequence[str]
    digests: list[str]
    journey: tuple[DiffusionModel, Sampling] | None

    def identity(self, model: DiffusionModel) -> list[object]:
        """Return what identifies these images in the rows of ``model``."""
        journey = None
        if self.journey is not None:
            base, sampling = self.journey
            journey = [
                sampling.seeds.start,
                sampling.steps,
                sampling.scheduler,
                sampling.guidance,
                *(sampling.prompts or ()),
            ]
            if base.fingerprint != model.fingerprint:
                journey.append(base.fingerprint)
        return [self.digests, self.captions, journey]


def _subjects(evidence: Evidence, settings: GradientSettings, of: str, method: str) -> Subjects:
    if of == "training":
        given = evidence.contributions
        return Subjects(given.images, given.captions, given.names, digests(given.images), None)
    images, base = evidence.comparable_queries(method), evidence.model(method)
    journey = (base, evidence.query_sampling(method)) if settings.kind == "journey_loss" else None
    names = [f"generated image {place}" for place in range(len(images))]
    return Subjects(images, evidence.query_captions(base, method), names, digests(images), journey)


def _gradients(per_image: PerImage, subjects: Subjects, places: Sequence[int], on_image: Callable[[], None]) -> Tensor:
    """Return (b, P): the gradients of the images at ``places``."""
    model, settings = per_image.model, per_image.settings
    t = time_steps(model, settings.time_steps)
    captions = None if subjects.captions is None else [subjects.captions[place] for place in places]
    encoded = model.encode(subjects.images[places], captions, mirrored=False)
    shape = tuple(encoded.x.shape[1:])
    if shape != (accepted := getattr(model, "shape", shape)):
        raise UserError(f"images of encoded shape {shape}; accepted: {accepted}")
    if subjects.journey is None:
        x = encoded.x[:, None].expand(-1, len(t), *shape)
    else:
        base, sampling = subjects.journey
        x = predicted_on_path(base, [sampling.seeds[place] for place in places], sampling, t)
    found = torch.empty(len(places), per_image.size, device=model.device)
    for first in range(0, len(places), per_image.images_at_once):
        cut = slice(first, first + per_image.images_at_once)
        noise = noises([subjects.digests[place] for place in places[cut]], len(t), shape, settings.seed)
        if model.device.type == "cuda":
            noise = noise.pin_memory()  # so that the next noise is drawn while the GPU works
        noise = noise.to(model.device, encoded.x.dtype, non_blocking=True)
        samples = Samples(x[cut], noise, t.expand(len(noise), -1), encoded.part(range(len(places))[cut]).condition)
        found[cut] = per_image.gradients(samples)
        for _ in range(len(noise)):
            on_image()
    return found


def predicted_on_path(model: DiffusionModel, seeds: Sequence[int], sampling: Sampling, t: Tensor) -> Tensor:
    """Return x̂₀(x̃_t) (m, J, c, h, w): the clean image that the model predicts from the noisy x̃_t on its sampling path.

    One for each seed, at each of the time steps ``t`` (J,), or the nearest one on the path.
    """
    if not isinstance(model, DiffusersModel):
        raise UserError(
            f"journey_loss: {type(model).__name__} has no sampling path to look at; a DiffusersModel is needed"
        )
    wanted = t.tolist()

    def of(places: range) -> Tensor:
        some = seeds[places.start : places.stop]
        path = model.objective.nearest(model.objective.sampler(sampling.scheduler, sampling.steps).times).tolist()
        nearest = [min(range(len(path)), key=lambda place, at=at: (abs(path[place] - at), place)) for at in wanted]
        kept: dict[int, Tensor] = {}

        def keep(place: int, predicted: Tensor) -> None:
            if place in nearest:
                kept[place] = predicted

        model.denoise(some, sampling.steps, sampling.scheduler, sampling.guidance, sampling.prompts, on_step=keep)
        return torch.stack([kept[place] for place in nearest], dim=1)

    with torch.no_grad():
        model.network.eval()
        return torch.cat(in_smaller_batches(of, len(seeds), sampling.batch_size))


def _chunks(places: NDArray[np.int64], per_image: PerImage) -> Iterator[list[int]]:
    device = per_image.model.device
    memory = torch.cuda.mem_get_info(device)[0] // GPU_SHARE if device.type == "cuda" else CPU_BYTES
    size = max(1, min(TOGETHER, memory // (4 * per_image.size)))
    for first in range(0, len(places), size):
        yield places[first : first + size].tolist()


def project(gradients: Tensor, dimensions: int, seed: int, on_part: Callable[[int, int], None] | None = None) -> Tensor:
    """Return G R / √k: rows (b, P) projected to (b, k), in float32 on the rows' device; k = ``dimensions``.

    R (P, k) has independent signs ±1 derived from ``seed`` and their places, the same on every device; it is never
    stored. Inner products are kept on average (Johnson and Lindenstrauss 1984; Achlioptas 2003): E ⟨xR, yR⟩/k = ⟨x, y⟩
    with variance (‖x‖²‖y‖² + ⟨x, y⟩² − 2 Σ_p x_p² y_p²) / k. ``on_part(done, total)`` counts parameters.
    """
    rows, parameters = gradients.shape
    blocks = max(1, by_device(SIGNS_AT_ONCE, gradients.device) // (dimensions * WORD))
    seeds = sign_seeds(dimensions, seed, gradients.device)
    total = torch.zeros(rows, dimensions, dtype=torch.float32, device=gradients.device)
    for first in range(0, math.ceil(parameters / WORD), blocks):
        part = gradients[:, first * WORD : (first + blocks) * WORD].float()
        block = signs(seeds, first, math.ceil(part.shape[1] / WORD))
        total.addmm_(part, block[:, : part.shape[1]].T)
        if on_part is not None:
            on_part(min((first + blocks) * WORD, parameters), parameters)
    return total / math.sqrt(dimensions)


def sign_seeds(dimensions: int, seed: int, device: torch.device | str = "cpu") -> Tensor:
    """Return (k,) int64: the seed of each row of Rᵀ, a number of the SplitMix64 sequence of R's ``seed``."""
    return splitmix64(torch.tensor(derive_seed("projection", seed), device=device), 0, dimensions)


def signs(seeds: Tensor, first: int, blocks: int) -> Tensor:
    """Return (k, 64·blocks) in float32: Rᵀ (k, P) for the parameters from 64·first on.

    Each row is a SplitMix64 sequence of its own; bit i of its number b is the sign of parameter 64·b + i.
    """
    octets = splitmix64(seeds[:, None], first, blocks).view(torch.uint8)  # lowest first wherever torch runs
    places = torch.arange(8, device=seeds.device)
    if octets.is_cuda:  # there 12 times as fast as the table, on a CPU 4 times as slow
        found = torch.where(octets[..., None] & (2**places).to(torch.uint8) != 0, 1.0, -1.0)
    else:
        of_bytes = 2 * (torch.arange(256)[:, None] >> places & 1) - 1
        found = torch.nn.functional.embedding(octets.int(), of_bytes.float())
    return found.view(len(seeds), WORD * blocks)


def splitmix64(seed: Tensor, first: int, count: int) -> Tensor:
    """Return (…, count) int64: the numbers first, …, first + count − 1 of SplitMix64 from each ``seed`` (…) int64."""
    places = torch.arange(first + 1, first + count + 1, device=seed.device)
    z = seed + places * _GAMMA
    z = (z ^ _shifted(z, 30)) * _FIRST
    z = (z ^ _shifted(z, 27)) * _SECOND
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, by: int) -> Tensor:
    """Return z >> by without torch's sign extension."""
    return (z >> by) & (2 ** (64 - by) - 1)


@dataclass(frozen=True, eq=False)
class Kept:
    """A folder with ``rows.npy`` (m, k) in float32 and ``done.npy`` (m,), 1 for each row that is there.

    A row is marked only after it was written, so that a process killed at any moment leaves no incomplete row. The
    folder appears complete, so that several processes may fill it, each with the same numbers.
    """

    rows: np.memmap
    done: np.memmap
    file: Path

    @classmethod
    def open(cls, folder: Path, rows: int, dimensions: int) -> Self:
        file = folder / "rows.npy"
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            needed, free = 4 * rows * dimensions, shutil.disk_usage(folder.parent).free
            if needed > free:
                raise UserError(
                    f"dimensions: {dimensions} for {rows} images take {needed / 1e9:.1f} GB in {folder.parent}, which "
                    f"has {free / 1e9:.1f} GB left; fewer dimensions need less"
                )
            with suppress(AlreadyThere), atomic_folder(folder) as temporary:
                np.lib.format.open_memmap(temporary / "rows.npy", "w+", np.float32, (rows, dimensions)).flush()
                np.save(temporary / "done.npy", np.zeros(rows, np.uint8))
        try:
            mapped, done = np.load(file, mmap_mode="r"), np.load(folder / "done.npy", mmap_mode="r+")
            fits = mapped.shape == (rows, dimensions) and done.shape == (rows,) and mapped.dtype == np.float32
        except (OSError, EOFError, ValueError):
            fits = False
        if not fits:
            raise UserError(f"{folder}: damaged; remove it to have its gradients computed again")
        return cls(mapped, done, file)

    def write(self, places: Sequence[int], rows: Rows) -> None:
        """Write the rows (b, k) of the ``places`` (b,)."""
        # not through the memory map, where a full disk would kill the process
        with self.file.open("r+b") as file:
            for place, row in zip(places, rows, strict=True):
                file.seek(self.rows.offset + place * row.nbytes)
                file.write(row.tobytes())
            file.flush()
            os.fsync(file.fileno())
        self.done[places] = 1
        self.done.flush()


def root_errors(evidence: Evidence, count: int, method: str, replicate: int = 0) -> FloatArray:
    """Return (m, J): √ℓ of each training image at J = ``count`` time steps in one model, with its gradient's noises."""
    model, given = evidence.model(method, replicate), evidence.contributions
    identities = digests(given.images)
    name = fingerprint(["root errors", model.fingerprint, count, evidence.seed, identities, given.captions])
    t = time_steps(model, count)
    model.network.eval()

    def of(places: range) -> FloatArray:
        cut = slice(places.start, places.stop)
        captions = None if given.captions is None else given.captions[cut]
        batch = model.encode(given.images[cut], captions, mirrored=False)
        noise = noises(identities[cut], len(t), batch.x.shape[1:], evidence.seed).to(batch.x)
        with torch.no_grad():
            losses = [model.loss(batch, t[j].expand(len(batch)), noise[:, j]) for j in range(len(t))]
        evidence.progress(f"{method}: errors of training images", places.stop, len(identities))
        return torch.stack(losses, dim=1).sqrt().double().cpu().numpy()

    def compute() -> dict[str, FloatArray]:
        at_once = by_device(IMAGES_AT_ONCE, model.device)
        return {"errors": np.concatenate(in_smaller_batches(of, len(identities), at_once))}

    return cached_arrays(evidence.folder, f"errors-{name[:16]}", compute)["errors"]
