"""The gradient of each single image at fixed time steps, with noises derived from its content."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from diffcredit.baselines.gradients.settings import GradientSettings, Kind
from diffcredit.diffusion.micro_batches import in_smaller_batches
from diffcredit.diffusion.model import Batch, DiffusionModel, Images
from diffcredit.errors import UserError
from diffcredit.util.seeds import derive_seed

# Samples that go through the network at once in an ordinary backward pass; fewer if the memory runs out.
SAMPLES_AT_ONCE = {"cpu": 64, "cuda": 256}
# Samples that keep a device busy; where one gradient has fewer, several gradients are computed together.
BUSY = {"cpu": 16, "cuda": 64}


def time_steps(model: DiffusionModel, count: int) -> Tensor:
    """Return (J,), J = ``count``: the middles ⌊(j + ½) T / J⌋ of J equal parts of the T time steps."""
    return torch.tensor([(2 * j + 1) * model.time_steps // (2 * count) for j in range(count)], device=model.device)


def digests(images: Images) -> list[str]:
    """Return the SHA-256 of each image's pixels, its identity in whatever order."""
    return [hashlib.sha256(image.tobytes()).hexdigest() for image in images]


def noises(identities: Sequence[str], count: int, shape: Sequence[int], seed: int) -> Tensor:
    """Return (m, J, …) standard normal, on the CPU; entry (i, j) is derived from (seed, digest_i, j)."""

    def one(identity: str, j: int) -> Tensor:
        return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(derive_seed(seed, identity, j)))

    return torch.stack([torch.stack([one(identity, j) for j in range(count)]) for identity in identities])


def trained_parameters(model: DiffusionModel, layers: Sequence[str] | None = None) -> dict[str, nn.Parameter]:
    """Return the trainable parameters in the network's order; only those whose names contain one of ``layers``."""
    trained = {name: parameter for name, parameter in model.network.named_parameters() if parameter.requires_grad}
    if not trained:
        raise UserError("the model has no trainable parameters, and so no gradients")
    if layers is None:
        return trained
    chosen = {name: parameter for name, parameter in trained.items() if any(text in name for text in layers)}
    if not chosen:
        raise UserError(
            f"layers: {', '.join(map(repr, layers)) or '[]'}; no trainable parameter's name contains one of these "
            f"texts; there are {', '.join(list(trained)[:3])}, …"
        )
    return chosen


def objective(model: DiffusionModel, kind: Kind, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
    """Return (m,): the number that is differentiated, for each sample."""
    if kind in ("loss", "journey_loss"):
        return model.loss(batch, t, noise)
    x_t = model.noise_schedule.add_noise(batch.x, noise, t)
    prediction = model.predict(x_t, t, batch.condition).float().flatten(1)
    return prediction.square().mean(1) if kind == "prediction_norm" else prediction.mean(1)


@dataclass(frozen=True)
class Samples:
    """u groups of s samples: ``x`` and ``noise`` (u, s, c, h, w), ``t`` (u, s), ``condition`` (u, …) of each group."""

    x: Tensor
    noise: Tensor
    t: Tensor
    condition: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def one_by_one(self) -> "Samples":
        """Return the same samples as groups of one, (u·s, 1, …)."""
        split = (each.flatten(0, 1)[:, None] for each in (self.x, self.noise, self.t))
        each_one = self.x.shape[1]
        return Samples(*split, None if self.condition is None else self.condition.repeat_interleave(each_one, 0))

    def part(self, cut: slice) -> "Samples":
        return Samples(
            self.x[cut], self.noise[cut], self.t[cut], None if self.condition is None else self.condition[cut]
        )


@dataclass
class PerImage:
    """The gradients of single images with respect to P parameters.

    A group of few samples leaves a device idle: several groups are computed together (``torch.func``). Where one group
    has enough samples, an ordinary backward pass is as fast. Both give the same up to rounding.
    """

    model: DiffusionModel
    settings: GradientSettings
    samples_at_once: int | None = None
    busy: int | None = None

    def __post_init__(self) -> None:
        self.parameters = trained_parameters(self.model, self.settings.layers)
        self.size = sum(parameter.numel() for parameter in self.parameters.values())
        self._samples_at_once = self.samples_at_once or _of(SAMPLES_AT_ONCE, self.model)
        self._scaled = self.settings.kind == "prediction_mean"
        in_a_group = 1 if self._scaled else self.settings.time_steps
        self._groups_at_once = max(1, (self.busy or _of(BUSY, self.model)) // in_a_group)
        if self._bf16:  # torch.func cannot differentiate through autocast's mixed types
            self._groups_at_once = 1
        self.images_at_once = 1 if self._scaled else self._groups_at_once
        self.model.network.eval()

    def gradients(self, images: Samples) -> Tensor:
        """Return (m, P) in float32 on the model's device: each image's gradient of the mean over J time steps.

        Parameters are in the network's order. For ``prediction_mean``, the gradient of each time step is scaled to
        length 1 before the mean is taken. It is fastest with about ``images_at_once`` images.
        """
        groups = images.one_by_one() if self._scaled else images
        per_image = len(groups) // max(1, len(images))
        total = torch.zeros(len(images), self.size, device=self.model.device)
        image = torch.arange(len(groups), device=total.device) // per_image

        def add(places: range) -> int:
            cut = slice(places.start, places.stop)
            found = self._of_groups(groups.part(cut))
            if self._scaled:  # 0 stays 0
                found /= per_image * found.norm(dim=1, keepdim=True).clamp_min(torch.finfo(found.dtype).tiny)
            total.index_add_(0, image[cut], found)
            return len(places)

        pieces = in_smaller_batches(add, len(groups), self._groups_at_once)
        if len(groups) >= self._groups_at_once:  # the next batches fit too
            self._groups_at_once = max(pieces)
        return total

    def _of_groups(self, groups: Samples) -> Tensor:
        """Return (u, P): the gradient of each group's mean."""
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=self._bf16):
            named = self._of_several(groups) if len(groups) > 1 else self._of_one(groups)
        return torch.cat([gradient.flatten(1).float() for gradient in named], dim=1)

    @property
    def _bf16(self) -> bool:
        return self.settings.precision == "bf16" and self.model.device.type == "cuda"

    def _of_several(self, groups: Samples) -> list[Tensor]:
        conditioned = None if groups.condition is None else 0

        def mean(
            parameters: dict[str, Tensor], x: Tensor, noise: Tensor, t: Tensor, condition: Tensor | None
        ) -> Tensor:
            return functional_call(_Mean(self.model, self.settings.kind), parameters, (x, noise, t, condition))

        of_each = vmap(grad(mean), in_dims=(None, 0, 0, 0, conditioned))
        parameters = {f"network.{name}": parameter.detach() for name, parameter in self.parameters.items()}
        # grad builds the graph it needs; fused attention would be computed group by group
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            return list(of_each(parameters, groups.x, groups.noise, groups.t, groups.condition).values())

    def _of_one(self, group: Samples) -> list[Tensor]:
        x, noise, t = group.x[0], group.noise[0], group.t[0]
        condition = None if group.condition is None else group.condition[0]
        weights, mean = list(self.parameters.values()), _Mean(self.model, self.settings.kind)
        total = [torch.zeros_like(weight, dtype=torch.float32) for weight in weights]

        def add(places: range) -> int:
            cut = slice(places.start, places.stop)
            share = mean(x[cut], noise[cut], t[cut], condition) * (len(places) / len(x))
            for sum_, gradient in zip(total, torch.autograd.grad(share, weights, materialize_grads=True), strict=True):
                sum_ += gradient
            return len(places)

        self._samples_at_once = max(in_smaller_batches(add, len(x), self._samples_at_once))
        return [sum_[None] for sum_ in total]


def _of(by_device: Mapping[str, int], model: DiffusionModel) -> int:
    return by_device.get(model.device.type, by_device["cpu"])


class _Mean(nn.Module):
    """The mean of the objective over the samples of one group, as a module, so that torch can replace the network's
    parameters."""

    def __init__(self, model: DiffusionModel, kind: Kind) -> None:
        super().__init__()
        self.network = model.network
        self.of = lambda batch, t, noise: objective(model, kind, batch, t, noise)

    def forward(self, x: Tensor, noise: Tensor, t: Tensor, condition: Tensor | None) -> Tensor:
        which = torch.arange(len(x))
        if condition is None:
            batch = Batch(x, x, which)
        else:
            batch = Batch(x, x, which, condition[None], torch.zeros(len(x), dtype=torch.long, device=x.device))
        return self.of(batch, t, noise).mean()
