"""In-Run Data Shapley: the effect of each training image in every step of the base model's own training."""

import dataclasses
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from diffcredit.baselines.base import Evidence, Scoring
from diffcredit.baselines.derivatives import Part, derivatives, mean_gradient
from diffcredit.baselines.gradients.per_image import trained_parameters
from diffcredit.diffusion.draws import draw
from diffcredit.diffusion.micro_batches import micro_batch_in_use
from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.diffusion.optimizers import learning_rate
from diffcredit.diffusion.settings import PositiveInt, Training
from diffcredit.diffusion.training import train
from diffcredit.errors import DiffcreditError, UserError
from diffcredit.properties import Images
from diffcredit.util.arrays import FloatArray
from diffcredit.util.artifacts import AlreadyThere, atomic_folder, fingerprint_arrays
from diffcredit.util.cache import artifact_name, cached_arrays
from diffcredit.util.seeds import derive_seed


@dataclass
class InRunShapley(Scoring):
    """Σ_k η_k/B ∇ℓ_val(θ_k) · ∇ℓ_j(θ_k) over the steps k whose batch of B images contains image j (Wang et al. 2025):
    to first order, the Shapley values of the batch's images for how much a step lowers ℓ_val.

    The base model's training is replayed exactly, so that the θ_k are its own. ℓ_j is the loss in that step, with its
    mirroring, time step, noise and weight. ℓ_val is the mean loss of a batch of B validation images, with time steps
    and noises of its own. As published, the step is that of plain SGD, η_k/B Σ_j ∇ℓ_j, without Adam's scaling of the
    gradient and without clipping. An interrupted replay continues where it stopped.

    ``chosen`` has the ``distance`` ‖θ − θ*‖/‖θ*‖ to the base model's weights: 0, or small if trained on another device.
    """

    validation: Literal["generated", "heldout"] = "generated"
    """Whether ℓ_val is of the base model's generated images or of the held-out ones."""
    every: PositiveInt = 2
    """Use one step in so many, weighted accordingly. With 2, a replay takes about twice as long as the training."""

    name = "in_run_shapley"
    title = "In-Run Data Shapley"
    category = "influence"
    aggregations = ("sum",)

    def check(self, evidence: Evidence) -> None:
        _, start = self._replayed(evidence)
        self._validation(evidence, start()[0])

    def seconds(self, evidence: Evidence, a_pass: float) -> dict[str, float]:
        settings, _ = self._replayed(evidence)
        looks = 2 / self.every  # at the validation batch and at the training batch
        passes = settings.steps * settings.batch_size * (1 + looks)
        return {f"{self.name}, {self.validation}, {self.every}": passes * a_pass}

    def scores(self, evidence: Evidence) -> FloatArray:
        settings, start = self._replayed(evidence)
        given, (model, seed) = evidence.contributions, start()
        images, captions = self._validation(evidence, model)
        base = evidence.model(self.name)
        identity = [model.fingerprint, base.fingerprint, given.fingerprint, dataclasses.asdict(settings), seed]
        name = artifact_name("in-run", [*identity, fingerprint_arrays({"images": images}), captions, self.every])
        with TemporaryDirectory() as temporary:
            folder = (evidence.folder or Path(temporary)) / name

            def make() -> dict[str, NDArray[Any]]:
                validation = model.encode(images, captions, mirrored=False)
                scores = self._replay(evidence, settings, model, seed, validation, folder)
                weights = [trained_parameters(each).values() for each in (model, base)]
                ours, theirs = (parameters_to_vector(each).detach().double().cpu() for each in weights)
                return {"scores": scores, "distance": ((ours - theirs).norm() / theirs.norm()).numpy()}

            found = cached_arrays(evidence.folder, name, make)
            shutil.rmtree(folder, ignore_errors=True)  # the result is cached
        self.chosen = {"distance": float(found["distance"])}
        return found["scores"]

    def _replayed(self, evidence: Evidence) -> "tuple[Training, Callable[[], tuple[DiffusionModel, int]]]":
        if evidence.start is None or evidence.training is None:
            raise UserError(f"{self.name}: replays the base model's training, and a pretrained model has none")
        return evidence.training, evidence.start

    def _validation(self, evidence: Evidence, model: DiffusionModel) -> tuple[Images, tuple[str, ...] | None]:
        given = evidence.contributions
        if self.validation == "generated":
            return evidence.comparable_queries(self.name), evidence.query_captions(model, self.name)
        if len(given.heldout) == 0:
            raise UserError(f"{self.name}: validation: heldout, but no image was held out; accepted: generated")
        return given.heldout, given.heldout_captions

    def _replay(
        self, evidence: Evidence, settings: Training, model: DiffusionModel, seed: int, validation: Batch, folder: Path
    ) -> FloatArray:
        """Train ``model`` as the base model was; return (m,): the sum over the steps used for each image.

        All that an interrupted replay needs is in ``folder``.
        """
        given, weights = evidence.contributions, list(trained_parameters(model))
        rows, values = _opened(folder, -(-settings.steps // self.every), settings.batch_size)
        unmirrored, draws_seed = dataclasses.replace(settings, flip=False), derive_seed(seed, "in-run validation")

        def look(step: int, batch: Batch, t: Tensor, noise: Tensor) -> None:
            if step % self.every:
                return
            at_once = micro_batch_in_use(model, settings)
            against = draw(
                validation,
                step,
                unmirrored,
                draws_seed,
                model.time_steps,
                dropout=getattr(model, "condition_dropout", 0.0),
            )
            direction = mean_gradient(model, _parts(*against), len(against[0]), weights, at_once=at_once)
            found = derivatives(model, _parts(batch, t, noise), len(batch), direction, at_once=at_once)
            if settings.min_snr is not None:
                found = found * model.objective.min_snr_weights(t, settings.min_snr).double().cpu().numpy()
            place = step // self.every
            values[place] = self.every * learning_rate(settings, step) / len(batch) * found
            rows[place] = batch.rows.numpy()

        on_image = partial(evidence.progress, "encoding images")
        train(
            model,
            model.encode(given.images, given.captions, mirrored=settings.flip, on_image=on_image),
            settings,
            seed=seed,
            checkpoint=folder / "checkpoint.safetensors",
            on_step=partial(evidence.progress, "replaying the base model's training"),
            on_batch=look,
        )
        if (rows < 0).any():
            raise _damaged(folder)
        return np.bincount(rows.ravel(), values.ravel(), minlength=len(given.images)).astype(np.float64)


def _opened(folder: Path, steps: int, batch_size: int) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the images' rows (K, B) and values (K, B) of each step used, on disk; −1 in a row before it is known.

    An interrupted replay has all steps before its checkpoint; those after it are computed again, with the same result.
    """
    if not folder.exists():
        with suppress(AlreadyThere), atomic_folder(folder) as temporary:
            np.save(temporary / "rows.npy", np.full((steps, batch_size), -1, np.int64))
            np.save(temporary / "values.npy", np.zeros((steps, batch_size)))
    try:
        rows, values = (np.load(folder / f"{name}.npy", mmap_mode="r+") for name in ("rows", "values"))
    except (OSError, EOFError, ValueError):
        raise _damaged(folder) from None
    return rows, values


def _damaged(folder: Path) -> DiffcreditError:
    return DiffcreditError(f"{folder}: damaged; remove it to have the training replayed from its start")


def _parts(batch: Batch, t: Tensor, noise: Tensor) -> Part:
    def at(places: range) -> tuple[Batch, Tensor, Tensor]:
        cut = slice(places.start, places.stop)
        return batch.part(places), t[cut], noise[cut]

    return at
