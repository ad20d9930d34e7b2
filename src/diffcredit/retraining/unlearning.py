"""Unlearning of the removed contributors: gradient ascent on their loss, or influence, a damped Newton step away from
them with the Fisher matrix as curvature, whose gradients are cached on disk."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from annotated_types import Gt
from numpy.typing import NDArray
from safetensors import safe_open
from scipy.linalg import cho_factor, cho_solve
from torch import Tensor

from diffcredit.contributions import Contributions
from diffcredit.diffusion.micro_batches import in_smaller_batches
from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.diffusion.settings import Count, PositiveInt, Training
from diffcredit.diffusion.training import train
from diffcredit.errors import DiffcreditError
from diffcredit.retraining.base import OneByOne, Rehearsal, RetrainingContext
from diffcredit.retraining.pruning import Sparsity
from diffcredit.retraining.pruning.sparsity import rehearsal_of, start_of
from diffcredit.retraining.soup import ForEachContributor
from diffcredit.util.cache import artifact_name, cached_arrays
from diffcredit.util.seeds import derive_seed

CLIP = 1.0  # norm to which gradients are clipped: unlike descent, ascent does not converge
NUMBERS_AT_ONCE = 2**25  # entries of G that are in memory at a time


@dataclass
class GradientAscent(OneByOne):
    """Ascend the loss on the images of contributors *outside* the coalition, from the base or the ``sparse`` model.

    By default this takes one pass over them, ⌈removed / batch⌉ ``steps``; if they are fewer than a batch, each is seen
    several times, at different time steps. The learning rate is constant. Optimizer and batch size are the base model's
    (the published code ascends with Adam). The model of all contributors is the start itself.
    """

    learning_rate: Annotated[float, Gt(0)] = 1e-5
    steps: PositiveInt | None = None
    batch_size: Count | None = None
    sparse: Sparsity | None = None

    fine_tunes: ClassVar[bool] = False

    def prepare(self, context: RetrainingContext) -> None:
        self.start, self.context = start_of(context, self.sparse), context
        self.weights = self.start.fingerprint
        self._data = context.data()

    def training(self, base: Training, removed: int) -> Training:
        """Return the settings of the ascent on ``removed`` images."""
        size = self.batch_size or base.batch_size
        return dataclasses.replace(
            base,
            steps=self.steps or math.ceil(removed / size),
            batch_size=size,
            learning_rate=self.learning_rate,
            schedule="constant",
            gradient_clip=CLIP,
            warmup_steps=0,
            ema=None,
            average_tail=None,
        )

    def rehearse(self, start: DiffusionModel, training: Training, contributions: Contributions) -> Rehearsal:
        """Half of the contributors' images stand for those outside a coalition."""
        half = math.ceil(contributions.counts.sum() / 2)
        return rehearsal_of(start, training, self.sparse, coalition=self.training(training, half))

    def model_for(self, coalition: NDArray[np.bool_], seed: int) -> DiffusionModel:
        model, removed = self.start.clone(), self.context.contributions.outside(coalition)
        if len(removed):
            settings = self.training(self.context.training, len(removed))
            train(model, self._data.select(removed), settings, seed=seed, ascend=True)
        return model


@dataclass
class Influence(OneByOne):
    """Compute the weights of coalition S from those of all contributors, θ*, without training (WoodFisher: Singh and
    Alistarh 2020).

    With ḡ_S = 1/m_S Σ_{j∈S} ∇ℓ_j(θ*) over the m_S images of S, the house's included, and ḡ over all m, a Newton
    step on the loss of S, minus the one on the loss of all images, is

        θ_S = θ* + F⁻¹ (ḡ − ḡ_S),    F = λI + 1/N Σ_b g_b g_bᵀ.

    Where θ* is optimal, ḡ = 0 and ḡ − ḡ_S = 1/m_S Σ_{j∉S} ∇ℓ_j. The g_b are the gradients of N mini-batches of one
    contributor each, the rows of G; then ḡ − ḡ_S = Gᵀw, w_b = size_b (1/m − [b∈S]/m_S), and by Woodbury

        θ_S = θ* + Gᵀ (λI + G Gᵀ/N)⁻¹ w,

    exactly. A coalition costs one solve of N equations and one pass over G, which takes 4·N·d bytes of disk for d
    trainable parameters. Nothing is random: the seed of an evaluation changes nothing.

    ``damping`` is λ in units of tr(1/N Σ_b g_b g_bᵀ) = 1/N Σ_b ‖g_b‖². No eigenvalue exceeds this trace, and it depends
    on neither N nor d (the mean of the diagonal would damp nothing, since nearly all of the d directions are flat).
    Much damping is needed: for squared errors the Fisher matrix is smaller than the curvature, by the size of the
    residuals, and the step is too long. On the demo's base model, over five coalitions of 2 to 10 of its 12
    contributors, 100 nearly tripled the loss, 1,000 raised that of the removed images by 2 % and of the others by 1 %,
    and 10,000 changed neither. There are ``batches`` mini-batches per contributor, each with ``time_steps`` time steps.
    """

    damping: Annotated[float, Gt(0)] = 1000.0
    batches: PositiveInt = 1
    time_steps: PositiveInt = 10
    sparse: Sparsity | None = None

    fine_tunes: ClassVar[bool] = False

    def prepare(self, context: RetrainingContext) -> None:
        self.start, self.context = start_of(context, self.sparse), context
        self.weights = self.start.fingerprint
        self._rows = rows = GradientRows.prepare(context, self.start, self.batches, self.time_steps)
        fisher = rows.gram / len(rows.gram)
        self._factor = cho_factor(fisher + self.damping * np.trace(fisher) * np.eye(len(fisher)))

    def rehearse(self, start: DiffusionModel, training: Training, contributions: Contributions) -> Rehearsal:
        steps = math.ceil(len(contributions.images) * self.time_steps / training.batch_size)
        return rehearsal_of(start, training, self.sparse, coalition=None, prepared_steps=steps)

    def model_for(self, coalition: NDArray[np.bool_], seed: int) -> DiffusionModel:
        rows, member = self._rows, self.context.contributions.groups_of(coalition)[self._rows.owner]
        w = rows.sizes * (1 / rows.sizes.sum() - member / rows.sizes[member].sum())
        step = rows.combined(cho_solve(self._factor, w))
        model = self.start.clone()
        weights = [parameter for parameter in model.network.parameters() if parameter.requires_grad]
        with torch.no_grad():
            for weight, change in zip(weights, step.split([weight.numel() for weight in weights]), strict=True):
                weight.add_(change.view_as(weight).to(weight.device))
        return model


@dataclass(frozen=True)
class GradientRows:
    """G (N, d): the gradients of N mini-batches with respect to the d trainable parameters, in single precision.
    ``owner`` and ``sizes`` (N,) are each row's group of images (a contributor's, or the house's) and number of images,
    ``gram`` (N, N) is G Gᵀ."""

    kept: ForEachContributor
    owner: NDArray[np.int64]
    sizes: NDArray[np.int64]
    gram: NDArray[np.float64]

    @classmethod
    def prepare(cls, context: RetrainingContext, start: DiffusionModel, batches: int, time_steps: int) -> Self:
        """Divide each contributor's images, and the house's, into ``batches`` mini-batches, at least one image each.

        A row is the gradient of the mean loss over its images and ``time_steps`` evenly spaced time steps. Each pair
        has its own noise, which follows from the study's seed, the image and the time step. Nothing is mirrored.
        """
        seed, groups = derive_seed(context.seed, "gradients"), context.contributions.groups
        min_snr, at_once = context.training.min_snr, context.training.micro_batch or context.training.batch_size
        probe = Probe(start, time_steps, seed, min_snr, at_once)

        def make(some: Sequence[int], data: Batch, places: Sequence[Tensor]) -> Iterator[Mapping[str, Tensor]]:
            for index, own in zip(some, places, strict=True):
                images = data.select(own)
                parts = [images.select(each) for each in _parts(len(images), batches)]
                rows = torch.stack([probe.gradient(each) for each in parts])
                if not rows.isfinite().all():
                    whose = context.contributions.giver(groups[index][0])
                    raise DiffcreditError(f"gradients of {whose!r} are not finite")
                context.progress("gradients of each contributor", index + 1, len(groups))
                yield {"rows": rows}

        identity = [start.fingerprint, batches, time_steps, seed, min_snr]
        kept = ForEachContributor.prepare(context, "gradients", identity, make)
        sizes = [[len(places) for places in _parts(len(images), batches)] for images in groups]
        owner = np.repeat(np.arange(len(groups)), [len(each) for each in sizes])
        name = artifact_name("gram", kept.fingerprint)
        cached = cached_arrays(context.folder / "gradients", name, lambda: {"gram": _gram(kept, len(owner))})
        return cls(kept, owner, np.concatenate(sizes), cached["gram"])

    def combined(self, weights: NDArray[np.float64]) -> Tensor:
        """Return Gᵀ w, (d,), given w (N,)."""
        w = torch.from_numpy(weights)
        return torch.cat([(w @ columns.double()).float() for columns in _columns(self.kept, len(weights))])


@dataclass(frozen=True)
class Probe:
    """The gradient of the loss at fixed time steps and noises, computed on ``at_once`` samples at a time."""

    model: DiffusionModel
    time_steps: int
    seed: int
    min_snr: float | None
    at_once: int

    def gradient(self, images: Batch) -> Tensor:
        """Return ∇ 1/(mK) Σ_i Σ_k ℓ_i(t_k, noise_ik) over the m images and K time steps, (d,) on the CPU."""
        self.model.network.eval()
        weights = [parameter for parameter in self.model.network.parameters() if parameter.requires_grad]
        total = [torch.zeros_like(weight) for weight in weights]

        def add(places: range) -> None:
            loss = self._losses(images.part(places)).sum() / (len(images) * self.time_steps)
            # the last blocks of some transformers have layers that the loss does not see
            torch._foreach_add_(total, torch.autograd.grad(loss, weights, materialize_grads=True))

        in_smaller_batches(add, len(images), max(1, self.at_once // self.time_steps))
        return torch.cat([gradient.flatten().float().cpu() for gradient in total])

    def _losses(self, images: Batch) -> Tensor:
        """Return the loss of each image at each time step, (m·K,)."""
        device, shape = images.x.device, images.x.shape[1:]
        generators = (torch.Generator().manual_seed(derive_seed(self.seed, row)) for row in images.rows.tolist())
        noise = torch.cat([torch.randn((self.time_steps, *shape), generator=generator) for generator in generators])
        # the middle of each of K equal strata
        middles = (torch.arange(self.time_steps) + 0.5) * (self.model.time_steps / self.time_steps)
        t = middles.long().repeat(len(images)).to(device)
        repeated = images.select(torch.arange(len(images)).repeat_interleave(self.time_steps))
        losses = self.model.loss(repeated, t, noise.to(device))
        if self.min_snr is not None:
            losses = losses * self.model.objective.min_snr_weights(t, self.min_snr)
        return losses


def _parts(count: int, batches: int) -> list[NDArray[np.int64]]:
    """Divide the indices 0..count−1 in turn, since neighbouring images are often alike."""
    return [np.arange(first, count, batches) for first in range(min(batches, count))]


def _columns(kept: ForEachContributor, rows: int) -> Iterator[Tensor]:
    """Yield G from left to right, as many columns at a time as fit, read from the mapped files."""
    with ExitStack() as stack:
        files = [stack.enter_context(safe_open(file, framework="pt")).get_slice("rows") for file in kept.files]
        total, width = files[0].get_shape()[1], max(1, NUMBERS_AT_ONCE // rows)
        for first in range(0, total, width):
            yield torch.cat([file[:, first : first + width] for file in files])


def _gram(kept: ForEachContributor, rows: int) -> NDArray[np.float64]:
    gram = torch.zeros(rows, rows, dtype=torch.float64)
    for columns in _columns(kept, rows):
        columns = columns.double()
        gram += columns @ columns.T
    return gram.numpy()
