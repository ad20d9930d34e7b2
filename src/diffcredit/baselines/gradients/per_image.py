"""The gradient of each single image at fixed time steps, with noises derived from its content."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from diffcredit.baselines.gradients import GradientSettings
from diffcredit.diffusion.conditions import Conditions
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


def normal(shape: Sequence[int], *parts: int | str) -> Tensor:
    """Return standard normal numbers on the CPU, derived from ``parts``: a seed, an image's digest, a time step, …"""
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(derive_seed(*parts)))


def noises(identities: Sequence[str], count: int, shape: Sequence[int], seed: int) -> Tensor:
    """Return (m, J, …) standard normal, on the CPU; entry (i, j) is derived from (seed, digest_i, j)."""
    drawn = [normal(shape, seed, identity, j) for identity in identities for j in range(count)]
    return torch.stack(drawn).unflatten(0, (-1, count))


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


class Samples(NamedTuple):
    """u groups of s samples: ``x`` and ``noise`` (u, s, c, h, w), ``t`` (u, s), and the tensors (u, …) of each group's
    ``condition``."""

    x: Tensor
    noise: Tensor
    t: Tensor
    condition: Conditions | None = None

    def one_by_one(self) -> "Samples":
        """Return the same samples as groups of one, (u·s, 1, …)."""
        split = (each.flatten(0, 1)[:, None] for each in (self.x, self.noise, self.t))
        times = self.x.shape[1]
        return Samples(*split, _each(self.condition, lambda of_group: of_group.repeat_interleave(times, 0)))

    def part(self, cut: slice | int) -> "Samples":
        return Samples(self.x[cut], self.noise[cut], self.t[cut], _each(self.condition, lambda of_group: of_group[cut]))


def _each(condition: Conditions | None, change: Callable[[Tensor], Tensor]) -> Conditions | None:
    return None if condition is None else {name: change(tensor) for name, tensor in condition.items()}


class PerImage:
    """The gradients of single images with respect to P parameters.

    A group of few samples leaves a device idle: several groups are computed together (``torch.func``). Where one group
    has ``busy`` samples (by default ``BUSY``), an ordinary backward pass is as fast. Both give the same up to rounding.
    """

    def __init__(self, model: DiffusionModel, settings: GradientSettings, busy: int | None = None) -> None:
        self.model, self.settings = model, settings
        self.parameters = trained_parameters(model, settings.layers)
        self.size = sum(parameter.numel() for parameter in self.parameters.values())
        self._samples_at_once = by_device(SAMPLES_AT_ONCE, model.device)
        self._scaled = settings.kind == "prediction_mean"
        self._bf16 = settings.precision == "bf16" and model.device.type == "cuda"
        in_a_group = 1 if self._scaled else settings.time_steps
        self._groups_at_once = max(1, (busy or by_device(BUSY, model.device)) // in_a_group)
        if self._bf16 or ragged(model):  # torch.func cannot differentiate through autocast's mixed types, either
            self._groups_at_once = 1
        self.images_at_once = 1 if self._scaled else self._groups_at_once
        model.network.eval()

    def gradients(self, images: Samples) -> Tensor:
        """Return (m, P) in float32 on the model's device: each image's gradient of the mean over J time steps.

        Parameters are in the network's order. For ``prediction_mean``, the gradient of each time step is scaled to
        length 1 before the mean is taken. It is fastest with about ``images_at_once`` images.
        """
        groups = images.one_by_one() if self._scaled else images
        count, per_image = len(groups.x), len(groups.x) // max(1, len(images.x))
        total = torch.zeros(len(images.x), self.size, device=self.model.device)
        image = torch.arange(count, device=total.device) // per_image

        def add(places: range) -> int:
            cut = slice(places.start, places.stop)
            found = self._of_groups(groups.part(cut))
            if self._scaled:  # 0 stays 0
                found /= per_image * found.norm(dim=1, keepdim=True).clamp_min(torch.finfo(found.dtype).tiny)
            total.index_add_(0, image[cut], found)
            return len(places)

        pieces = in_smaller_batches(add, count, self._groups_at_once)
        if count >= self._groups_at_once:  # the next batches fit too
            self._groups_at_once = max(pieces)
        return total

    def _of_groups(self, groups: Samples) -> Tensor:
        """Return (u, P): the gradient of each group's mean."""
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=self._bf16):
            named = self._of_several(groups) if len(groups.x) > 1 else self._of_one(*groups.part(0))
        return torch.cat([gradient.flatten(1).float() for gradient in named], dim=1)

    def _of_several(self, groups: Samples) -> list[Tensor]:
        conditioned = None if groups.condition is None else 0

        def mean(parameters: dict[str, Tensor], *group: Any) -> Tensor:
            return with_weights(self.model, self._mean, parameters, *group)

        of_each = vmap(grad(mean), in_dims=(None, 0, 0, 0, conditioned))
        parameters = {name: parameter.detach() for name, parameter in self.parameters.items()}
        # grad builds the graph it needs; fused attention would be computed group by group
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            return list(of_each(parameters, *groups).values())

    def _of_one(self, x: Tensor, noise: Tensor, t: Tensor, condition: Conditions | None) -> list[Tensor]:
        weights = list(self.parameters.values())
        total = [torch.zeros_like(weight, dtype=torch.float32) for weight in weights]

        def add(places: range) -> int:
            cut = slice(places.start, places.stop)
            share = self._mean(x[cut], noise[cut], t[cut], condition) * (len(places) / len(x))
            for sum_, gradient in zip(total, torch.autograd.grad(share, weights, materialize_grads=True), strict=True):
                sum_ += gradient
            return len(places)

        self._samples_at_once = max(in_smaller_batches(add, len(x), self._samples_at_once))
        return [sum_[None] for sum_ in total]

    def _mean(self, x: Tensor, noise: Tensor, t: Tensor, condition: Conditions | None) -> Tensor:
        """Return the number that is differentiated: the mean over the samples of one group."""
        model, kind, batch = self.model, self.settings.kind, Batch(x, x, torch.arange(len(x)))
        if condition is not None:
            of_all = torch.zeros(len(x), dtype=torch.long, device=x.device)
            batch = replace(batch, conditions=_each(condition, lambda one: one[None]), condition_of=of_all)
        if kind in ("loss", "journey_loss"):
            return model.loss(batch, t, noise).mean()
        x_t = model.objective.add_noise(x, noise, t)
        prediction = model.predict(x_t, t, batch.condition).float().flatten(1)
        return (prediction.square() if kind == "prediction_norm" else prediction).mean(1).mean()


def ragged(model: DiffusionModel) -> bool:
    """Return whether ``vmap`` cannot go through the model's network."""
    return getattr(getattr(model, "denoiser", None), "ragged", False)


def by_device(table: Mapping[str, int], device: torch.device) -> int:
    """Return the entry of the device's kind; that of a CPU where there is none."""
    return table.get(device.type, table["cpu"])


def with_weights(
    model: DiffusionModel, function: Callable[..., Tensor], weights: Mapping[str, Tensor], *arguments: Any
) -> Tensor:
    """Call a ``function`` of the model, such as its loss, with these weights in its network."""
    named = {f"network.{name}": weight for name, weight in weights.items()}
    return functional_call(_OfNetwork(model.network, function), named, arguments)


class _OfNetwork(nn.Module):
    """A function that calls a network, as a module, so that torch can replace the network's weights."""

    def __init__(self, network: nn.Module, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.network, self.function = network, function

    def forward(self, *arguments: Any) -> Tensor:
        return self.function(*arguments)
