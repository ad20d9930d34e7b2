"""In-Run Data Shapley: what each training image did in every step of the base model's own training."""

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from diffcredit.artifacts import fingerprint_arrays
from diffcredit.baselines.influence_functions import kept
from diffcredit.baselines.protocol import Category, Evidence, FloatArray, How
from diffcredit.baselines.queries import comparable_queries, query_captions
from diffcredit.diffusion.settings import PositiveInt, Training
from diffcredit.errors import UserError
from diffcredit.properties import Images
from diffcredit.seeds import derive_seed

if TYPE_CHECKING:
    from torch import Tensor

    from diffcredit.diffusion.protocol import Batch, DiffusionModel

WHAT = "replaying the base model's training"


@dataclass
class InRunShapley:
    """Σ_k η_k/B ∇ℓ_val(θ_k) · ∇ℓ_j(θ_k) over the steps k whose batch of B images holds image j (Wang et al. 2025, first
    order): to first order, the Shapley values of the batch's images in the game of how much a step lowers ℓ_val.

    The base model's training is replayed exactly, so that the θ_k are its own; ℓ_j is the loss that the step saw, with
    its mirroring, time step, noise and weight. ℓ_val is the mean loss of the ``validation`` images: those that the base
    model generated, or the held-out ones; in each step a batch of B of them, with time steps and noises of its own.

    As published, the step is that of plain SGD, η_k/B Σ_j ∇ℓ_j: what Adam makes of the gradient, and its clipping, are
    not in it. Only every ``every``-th step is looked at, and counts as often; at 2 the work of a training is about
    doubled. ``chosen`` tells how far the replayed weights are from the base model's, ‖θ − θ*‖/‖θ*‖: 0, or a little on a
    device that computes otherwise than that of the training.
    """

    validation: Literal["generated", "heldout"] = "generated"
    every: PositiveInt = 2

    name: ClassVar[str] = "in_run_shapley"
    title: ClassVar[str] = "In-Run Data Shapley"
    category: ClassVar[Category] = "influence"
    aggregations: ClassVar[tuple[How, ...]] = ("sum",)

    def scores(self, evidence: Evidence) -> FloatArray:
        if evidence.start is None or evidence.training is None:
            raise UserError(f"{self.name}: replays the base model's training, and a model that came trained has none")
        settings, given = evidence.training, evidence.contributions
        model, seed = evidence.start()
        images, captions = self._validation(evidence, model)
        looked_at = fingerprint_arrays({"images": images})
        base = evidence.model(self.name)
        identity = [model.fingerprint, base.fingerprint, given.fingerprint, dataclasses.asdict(settings), seed]

        def make() -> dict[str, NDArray[Any]]:
            from diffcredit.diffusion.training import train

            told = partial(evidence.progress, "encoding images")
            data = model.encode(given.images, given.captions, mirrored=settings.flip, on_image=told)
            credit = _StepCredits(model, model.encode(images, captions, mirrored=False), settings, seed, self.every)
            train(model, data, settings, seed=seed, on_step=partial(evidence.progress, WHAT), on_batch=credit.look)
            scores = np.bincount(
                np.concatenate(credit.rows), np.concatenate(credit.shares), minlength=len(given.images)
            )
            return {"scores": scores, "distance": np.array(distance(model, base))}

        found = kept(evidence.folder, "in-run", [*identity, looked_at, captions, self.every], make)
        self.chosen = {"distance": float(found["distance"])}
        return found["scores"]

    def _validation(self, evidence: Evidence, model: "DiffusionModel") -> tuple[Images, tuple[str, ...] | None]:
        given = evidence.contributions
        if self.validation == "generated":
            return comparable_queries(evidence, self.name), query_captions(evidence, model, self.name)
        if len(given.heldout) == 0:
            raise UserError(f"{self.name}: validation: heldout, and no image was held out; accepted: generated")
        return given.heldout, given.heldout_captions


class _StepCredits:
    """The images' places and what they did, one array each a step."""

    def __init__(self, model: "DiffusionModel", validation: "Batch", settings: Training, seed: int, every: int) -> None:
        self.model, self.validation, self.every = model, validation, every
        self.settings, self.seed = settings, derive_seed(seed, "in-run validation")
        self.rows: list[NDArray[np.int64]] = []
        self.shares: list[FloatArray] = []

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
        self.rows.append(batch.rows.numpy())
        self.shares.append(self.every * learning_rate(self.settings, step) / len(batch) * found)


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
        from diffcredit.diffusion.micro_batches import part

        cut = slice(places.start, places.stop)
        return part(self.batch, places), self.t[cut], self.noise[cut]


def distance(one: "DiffusionModel", other: "DiffusionModel") -> float:
    """‖θ − θ*‖/‖θ*‖ over the trained weights."""
    from torch.nn.utils import parameters_to_vector

    from diffcredit.baselines.gradients.per_image import trained_parameters

    ours, theirs = (
        parameters_to_vector(trained_parameters(each).values()).detach().double().cpu() for each in (one, other)
    )
    return float((ours - theirs).norm() / theirs.norm())
