"""In-Run Data Shapley: the effect of each training image in every step of the base model's own training."""

import dataclasses
import shutil
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from diffcredit.baselines.base import Evidence, Scoring
from diffcredit.baselines.queries import comparable_queries, query_captions
from diffcredit.diffusion.settings import PositiveInt, Training
from diffcredit.errors import DiffcreditError, UserError
from diffcredit.properties import Images
from diffcredit.util.arrays import FloatArray
from diffcredit.util.artifacts import AlreadyThere, atomic_folder, fingerprint, fingerprint_arrays
from diffcredit.util.cache import artifact_name, cached_arrays
from diffcredit.util.seeds import derive_seed

if TYPE_CHECKING:
    from torch import Tensor

    from diffcredit.diffusion.model import Batch, DiffusionModel

WHAT = "replaying the base model's training"


@dataclass
class InRunShapley(Scoring):
    """Σ_k η_k/B ∇ℓ_val(θ_k) · ∇ℓ_j(θ_k) over the steps k whose batch of B images contains image j (Wang et al. 2025):
    to first order, the Shapley values of the batch's images for how much a step lowers ℓ_val.

    The base model's training is replayed exactly, so that the θ_k are its own. ℓ_j is the loss in that step, with its
    mirroring, time step, noise and weight. ℓ_val is the mean loss of a batch of B validation images, with time steps
    and noises of its own. As published, the step is that of plain SGD, η_k/B Σ_j ∇ℓ_j, without Adam's scaling of the
    gradient and without clipping. An interrupted replay continues where it stopped.

    ``chosen`` has the ``distance`` of the replayed weights to the base model's, ‖θ − θ*‖/‖θ*‖: 0, or small where the
    training ran on another device.
    """

    validation: Literal["generated", "heldout"] = "generated"
    """Whether ℓ_val is of the base model's generated images or of the held-out ones."""
    every: PositiveInt = 2
    """Use one step in so many, weighted accordingly. With 2, a replay takes about twice as long as the training."""

    name = "in_run_shapley"
    title = "In-Run Data Shapley"
    category = "influence"
    aggregations = ("sum",)

    def scores(self, evidence: Evidence) -> FloatArray:
        if evidence.start is None or evidence.training is None:
            raise UserError(f"{self.name}: replays the base model's training, and a pretrained model has none")
        settings, given = evidence.training, evidence.contributions
        model, seed = evidence.start()
        images, captions = self._validation(evidence, model)
        looked_at = fingerprint_arrays({"images": images})
        base = evidence.model(self.name)
        identity = [model.fingerprint, base.fingerprint, given.fingerprint, dataclasses.asdict(settings), seed]

        def make() -> dict[str, NDArray[Any]]:
            from diffcredit.diffusion.training import train

            on_image = partial(evidence.progress, "encoding images")
            data = model.encode(given.images, given.captions, mirrored=settings.flip, on_image=on_image)
            shares = _Shares.open(replay, -(-settings.steps // self.every), settings.batch_size)
            validation = model.encode(images, captions, mirrored=False)
            credit = _StepCredits(model, validation, settings, seed, self.every, shares)
            train(
                model,
                data,
                settings,
                seed=seed,
                checkpoint=replay / "checkpoint.safetensors" if replay else None,
                on_step=partial(evidence.progress, WHAT),
                on_batch=credit.look,
            )
            return {"scores": shares.summed(len(given.images)), "distance": np.array(distance(model, base))}

        looked = [*identity, looked_at, captions, self.every]
        replay = evidence.folder / f"in-run-{fingerprint(looked)[:12]}" if evidence.folder else None
        found = cached_arrays(evidence.folder, artifact_name("in-run", looked), make)
        if replay is not None:
            shutil.rmtree(replay, ignore_errors=True)  # the result is cached
        self.chosen = {"distance": float(found["distance"])}
        return found["scores"]

    def _validation(self, evidence: Evidence, model: "DiffusionModel") -> tuple[Images, tuple[str, ...] | None]:
        given = evidence.contributions
        if self.validation == "generated":
            return comparable_queries(evidence, self.name), query_captions(evidence, model, self.name)
        if len(given.heldout) == 0:
            raise UserError(f"{self.name}: validation: heldout, but no image was held out; accepted: generated")
        return given.heldout, given.heldout_captions


@dataclass(frozen=True, eq=False)
class _Shares:
    """The ``values`` (K, B) of the images of each step used, and the images' ``rows`` (K, B); −1 before they are known.

    They are written to disk as they are computed. An interrupted replay continues from its checkpoint: all steps before
    it are there, those after it are computed again with the same result.
    """

    rows: NDArray[np.int64]
    values: FloatArray
    folder: Path | None

    @classmethod
    def open(cls, folder: Path | None, steps: int, batch_size: int) -> Self:
        shape = (steps, batch_size)
        if folder is None:
            return cls(np.full(shape, -1, np.int64), np.zeros(shape), None)
        if not folder.exists():
            with suppress(AlreadyThere), atomic_folder(folder) as temporary:
                np.save(temporary / "rows.npy", np.full(shape, -1, np.int64))
                np.save(temporary / "values.npy", np.zeros(shape))
        try:
            rows, values = (np.load(folder / f"{name}.npy", mmap_mode="r+") for name in ("rows", "values"))
        except (OSError, EOFError, ValueError):
            raise _damaged(folder) from None
        return cls(rows, values, folder)

    def summed(self, images: int) -> FloatArray:
        """Return (m,): the sum over all steps for each image."""
        if (self.rows < 0).any():
            raise _damaged(self.folder)
        return np.bincount(self.rows.ravel(), self.values.ravel(), minlength=images).astype(np.float64)


def _damaged(folder: Path | None) -> DiffcreditError:
    return DiffcreditError(f"{folder}: damaged; remove it to have the training replayed from its start")


class _StepCredits:
    """Computes the values of the images of each step."""

    def __init__(
        self, model: "DiffusionModel", validation: "Batch", settings: Training, seed: int, every: int, shares: _Shares
    ) -> None:
        self.model, self.validation, self.every, self.shares = model, validation, every, shares
        self.settings, self.seed = settings, derive_seed(seed, "in-run validation")

    def look(self, step: int, batch: "Batch", t: "Tensor", noise: "Tensor") -> None:
        from diffcredit.baselines.directional import derivatives, mean_gradient
        from diffcredit.baselines.gradients.per_image import trained_parameters
        from diffcredit.diffusion.draws import draw
        from diffcredit.diffusion.micro_batches import micro_batch_in_use
        from diffcredit.diffusion.optimizers import learning_rate

        if step % self.every:
            return
        model, at_once = self.model, micro_batch_in_use(self.model, self.settings)
        unmirrored = dataclasses.replace(self.settings, flip=False)
        against = _Drawn(model, *draw(self.validation, step, unmirrored, self.seed, model.time_steps))
        direction = mean_gradient(against, list(trained_parameters(model)), at_once=at_once)
        found = derivatives(_Drawn(model, batch, t, noise), direction, at_once=at_once)
        if self.settings.min_snr is not None:
            found = found * model.noise_schedule.min_snr_weights(t, self.settings.min_snr).double().cpu().numpy()
        place = step // self.every
        self.shares.values[place] = self.every * learning_rate(self.settings, step) / len(batch) * found
        self.shares.rows[place] = batch.rows.numpy()


@dataclass(frozen=True, eq=False)
class _Drawn:
    """The samples of one training step."""

    model: "DiffusionModel"
    batch: "Batch"
    t: "Tensor"
    noise: "Tensor"

    def __len__(self) -> int:
        return len(self.batch)

    def at(self, places: range) -> "tuple[Batch, Tensor, Tensor]":

        cut = slice(places.start, places.stop)
        return self.batch.part(places), self.t[cut], self.noise[cut]


def distance(one: "DiffusionModel", other: "DiffusionModel") -> float:
    """Return ‖θ − θ*‖/‖θ*‖ over the trained weights."""
    from torch.nn.utils import parameters_to_vector

    from diffcredit.baselines.gradients.per_image import trained_parameters

    ours, theirs = (
        parameters_to_vector(trained_parameters(each).values()).detach().double().cpu() for each in (one, other)
    )
    return float((ours - theirs).norm() / theirs.norm())
