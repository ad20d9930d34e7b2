"""Derivatives of the loss of images at fixed time steps and noises.

The mean gradient; each image's derivative in one direction, d/dε ℓ_i(θ + εv) at ε = 0, which is ∇ℓ_i · v: forward mode
computes it for a whole batch at the cost of about two passes through the network, without any single gradient; and the
curvature, diagonal or diagonal in the eigenbases of Kronecker factors.

The Gauss–Newton matrix of a squared loss ℓ = ‖f(θ) − y‖²/d is 2/d JᵀJ, J = ∂f/∂θ. Draw a target from the model's own
predictive Gaussian: it is z ~ N(0, I_d) away from the prediction, and g = √(2/d) Jᵀz has E[g gᵀ] = 2/d JᵀJ. Gradients
towards such pseudo-targets estimate the curvature without the residuals of the data (Mlodozeniec et al. 2025).
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import grad, jvp, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from diffcredit.baselines.gradients.per_image import digests, normal, ragged, time_steps, with_weights
from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.micro_batches import in_smaller_batches
from diffcredit.diffusion.model import Batch, DiffusionModel, Images
from diffcredit.errors import UserError
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.progress import Progress, silent

AT_ONCE = 64  # samples that go through the network together; fewer if the memory runs out
NUMBERS_AT_ONCE = 2**28  # of per-sample gradients in memory

Weights = Mapping[str, Tensor]  # by the names of the trained parameters, shaped like them
Report = Callable[[int, int], None] | None  # is called with the number of samples done, and of all
Part = Callable[[range], tuple[Batch, Tensor, Tensor]]  # contiguous samples: images (b), time steps (b,), noises (b, …)


@dataclass(frozen=True, eq=False)
class Samples:
    """m images at J = ``time_steps`` time steps each, with the same time steps and noises as in all gradient baselines.

    Sample i·J + j is image i at t_j with a noise derived from (``seed``, digest_i, j).
    """

    model: DiffusionModel
    images: Images
    captions: Sequence[str] | None
    time_steps: int
    seed: int
    progress: Progress = silent

    def __len__(self) -> int:
        return len(self.images) * self.time_steps

    @cached_property
    def digests(self) -> list[str]:
        return digests(self.images)

    @cached_property
    def data(self) -> Batch:
        """The encoded images."""
        on_image = partial(self.progress, "encoding images")
        return self.model.encode(self.images, self.captions, mirrored=False, on_image=on_image)

    @property
    def identity(self) -> list[str]:
        """(m,) one text for each image: its pixels and its caption."""
        if self.captions is None:
            return self.digests
        return [fingerprint(each) for each in zip(self.digests, self.captions, strict=True)]

    def at(self, places: range) -> tuple[Batch, Tensor, Tensor]:
        place = torch.tensor(places)
        t = time_steps(self.model, self.time_steps)[place % self.time_steps]
        return self.data.select(place // self.time_steps), t, self.normal(places)

    def normal(self, places: range, *parts: int | str) -> Tensor:
        """Return (b, c, h, w) standard normal numbers derived from the samples' content and ``parts``."""
        shape, of_each = self.data.x.shape[1:], (divmod(place, self.time_steps) for place in places)
        drawn = [normal(shape, self.seed, self.digests[image], step, *parts) for image, step in of_each]
        return torch.stack(drawn).to(self.data.x.device, self.data.x.dtype)


def mean_gradient(
    model: DiffusionModel, at: Part, count: int, names: Sequence[str], report: Report = None, at_once: int = AT_ONCE
) -> dict[str, Tensor]:
    """Return the gradient of the mean loss of ``count`` samples with respect to the named parameters."""
    parameters = dict(model.network.named_parameters())
    weights = [parameters[name] for name in names]
    total = [torch.zeros_like(weight) for weight in weights]

    def add(places: range) -> None:
        loss = model.loss(*at(places)).sum() / count
        torch._foreach_add_(total, torch.autograd.grad(loss, weights, materialize_grads=True))
        if report is not None:
            report(places.stop, count)

    with differentiable(model.network):
        in_smaller_batches(add, count, at_once)
    return dict(zip(names, total, strict=True))


def derivatives(
    model: DiffusionModel, at: Part, count: int, direction: Weights, report: Report = None, at_once: int = AT_ONCE
) -> NDArray[np.float64]:
    """Return (``count``,): ∇ℓ_i · v of each sample i, v = ``direction``."""
    weights = {name: p.detach() for name, p in model.network.named_parameters() if name in direction}
    tangents = {name: direction[name] for name in weights}

    def of(places: range) -> NDArray[np.float64]:
        sample = at(places)

        def losses(moved: Weights) -> Tensor:
            return with_weights(model, model.loss, moved, *sample)

        try:
            found = jvp(losses, (weights,), (tangents,))[1].double().cpu().numpy()
        except NotImplementedError as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"the model's network has a layer without forward-mode derivatives ({reason})") from None
        if report is not None:
            report(places.stop, count)
        return found

    with differentiable(model.network), torch.no_grad():
        return np.concatenate(in_smaller_batches(of, count, at_once))


@contextmanager
def differentiable(network: nn.Module) -> Generator[None]:
    """Put the network in evaluation mode and make it compute such that every derivative of torch.func exists.

    Fused attention has no forward mode, and that of GroupNorm accepts contiguous tensors only, tangents included.
    """
    training = network.training
    norms = [module for module in network.modules() if isinstance(module, nn.GroupNorm)]

    def contiguous(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return inputs[0].clone(memory_format=torch.contiguous_format), *inputs[1:]

    hooks = [norm.register_forward_pre_hook(contiguous) for norm in norms]
    network.eval()
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        network.train(training)
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True, eq=False)
class Curvature:
    """F ≈ Q diag(Λ) Qᵀ over the trained parameters; different parameters are uncorrelated.

    ``moments`` are Λ = E[(Qᵀg)²], shaped like the parameters. Where a weight W (o, i, …) has ``left`` (o, o) and
    ``right`` (i·…, i·…), Q maps G to left G rightᵀ; elsewhere Q = I.
    """

    moments: Weights
    left: Weights
    right: Weights

    @property
    def mean_eigenvalue(self) -> float:
        """tr F / P over all P parameters; Q keeps the trace."""
        total = sum(float(each.double().sum()) for each in self.moments.values())
        return total / sum(each.numel() for each in self.moments.values())

    def solve(self, gradient: Weights, damping: float) -> dict[str, Tensor]:
        """Return (F + λI)⁻¹ g, λ = ``damping``."""
        solved = {}
        for name, moments in self.moments.items():
            left, right = self.left.get(name), self.right.get(name)
            share = rotated(gradient[name][None], left, right)[0] / (moments + damping)
            back = (None, None) if left is None or right is None else (left.T, right.T)
            solved[name] = rotated(share[None], *back)[0]
        return solved

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return named arrays, for a file."""
        parts = vars(self).items()
        return {f"{part}/{name}": each.cpu().numpy() for part, named in parts for name, each in named.items()}

    @classmethod
    def read(cls, arrays: Mapping[str, NDArray[Any]], device: torch.device) -> Self:
        parts: dict[str, dict[str, Tensor]] = {field.name: {} for field in fields(cls)}
        for key, array in arrays.items():
            part, _, name = key.partition("/")
            parts[part][name] = torch.from_numpy(array).to(device)
        return cls(**parts)


def rotated(gradients: Tensor, left: Tensor | None, right: Tensor | None) -> Tensor:
    """Return leftᵀ G right of each gradient G (b, o, i, …), the inputs i, … flattened; unchanged without ``left``."""
    if left is None or right is None:
        return gradients
    matrices = gradients.flatten(2) if gradients.ndim > 2 else gradients
    return (left.T @ matrices @ right).reshape(gradients.shape)


def curvature(samples: Samples, weights: Weights, draws: int, kronecker: bool, progress: Progress) -> Curvature:
    """Estimate F of the mean loss over all samples, from ``draws`` pseudo-targets of each.

    Without ``kronecker``, Q = I: the diagonal of F. With it (EK-FAC; George et al. 2018), Q of a linear layer or
    convolution consists of the eigenvectors of K-FAC's factors A = E Σ_p a_p a_pᵀ of the inputs and S = E Σ_p δ_p δ_pᵀ
    of the gradients at the outputs, summed over positions p; other parameters have Q = I. The moments are then measured
    instead of multiplying the factors' eigenvalues, so that F keeps its trace and its diagonal in that basis.
    """
    left, right = _eigenbases(samples, weights, draws, progress) if kronecker else ({}, {})
    total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    numbers, count = sum(weight.numel() for weight in weights.values()), len(samples) * draws
    at_once = max(1, min(AT_ONCE, NUMBERS_AT_ONCE // numbers))
    for draw in range(draws):

        def add(places: range, draw: int = draw) -> None:
            gradients = _pseudo_gradients(samples, places, draw, weights)
            for name, each in gradients.items():
                total[name] += rotated(each, left.get(name), right.get(name)).square().sum(0) / count
            progress("curvature", draw * len(samples) + places.stop, count)

        in_smaller_batches(add, len(samples), at_once)
    return Curvature(total, left, right)


def _pseudo_gradients(samples: Samples, places: range, draw: int, weights: Weights) -> dict[str, Tensor]:
    """Return √(2/d) Jᵀz of each sample, (b, …) by parameter."""
    model, errors = samples.model, samples.normal(places, "target", draw)
    x_t, t, condition = _inputs(samples, places)

    def projected(moved: Weights, x_t: Tensor, t: Tensor, condition: Conditions | None, error: Tensor) -> Tensor:
        one = None if condition is None else {name: each[None] for name, each in condition.items()}
        prediction = with_weights(model, model.predict, moved, x_t[None], t[None], one)[0]
        return (prediction * error).sum() * math.sqrt(2 / error.numel())

    of_one, axes = grad(projected), (None, 0, 0, None if condition is None else 0, 0)
    with differentiable(model.network), torch.no_grad():  # grad builds the graph it needs
        if not ragged(model):
            return vmap(of_one, in_dims=axes)(dict(weights), x_t, t, condition, errors)
        each = [
            of_one(dict(weights), x_t[i], t[i], condition and {name: c[i] for name, c in condition.items()}, errors[i])
            for i in range(len(places))
        ]
        return {name: torch.stack([gradients[name] for gradients in each]) for name in weights}


def _inputs(samples: Samples, places: range) -> tuple[Tensor, Tensor, Conditions | None]:
    batch, t, noise = samples.at(places)
    return samples.model.objective.add_noise(batch.x, noise, t), t, batch.condition


def _eigenbases(
    samples: Samples, weights: Weights, draws: int, progress: Progress
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the eigenvectors of the factors S and A of every layer that has them, by the name of its weight."""
    model = samples.model
    layers = {
        f"{name}.weight": module
        for name, module in model.network.named_modules()
        if f"{name}.weight" in weights and has_factors(module)
    }
    zeros = partial(torch.zeros, dtype=torch.float64, device=samples.data.x.device)
    inner = {name: zeros([weights[name][0].numel()] * 2) for name in layers}
    outer = {name: zeros([len(weights[name])] * 2) for name in layers}
    parameters = [p for name, p in model.network.named_parameters() if name in weights]
    for draw in range(draws):

        def add(places: range, draw: int = draw) -> None:
            errors = samples.normal(places, "target", draw)
            with differentiable(model.network), _recorded(layers) as records:
                prediction = model.predict(*_inputs(samples, places))
                torch.autograd.grad(prediction, parameters, errors, materialize_grads=True)
            for name, of_inputs, of_outputs in records:  # only after the whole batch succeeded
                inner[name] += of_inputs
                outer[name] += of_outputs
            progress("eigenbases of the curvature", draw * len(samples) + places.stop, len(samples) * draws)

        in_smaller_batches(add, len(samples), AT_ONCE)
    left = {name: torch.linalg.eigh(outer[name])[1].to(weights[name].dtype) for name in layers}
    right = {name: torch.linalg.eigh(inner[name])[1].to(weights[name].dtype) for name in layers}
    return left, right


def has_factors(module: nn.Module) -> bool:
    """Return whether the layer multiplies the inputs of every position by one matrix."""
    if isinstance(module, nn.Conv2d):
        return module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return isinstance(module, nn.Linear)


def positions(module: nn.Module, inputs: Tensor) -> Tensor:
    """Return (b·positions, i): the inputs that the weight, as a matrix (o, i), multiplies at each position."""
    if isinstance(module, nn.Conv2d):
        shape: dict[str, Any] = {"dilation": module.dilation, "padding": module.padding, "stride": module.stride}
        return functional.unfold(inputs, module.kernel_size, **shape).transpose(1, 2).flatten(0, 1)
    return inputs.flatten(0, -2)


@contextmanager
def _recorded(layers: Mapping[str, nn.Module]) -> Generator[list[tuple[str, Tensor, Tensor]]]:
    """Yield a list that a backward pass fills with each layer's name, Σ_p a_p a_pᵀ (i, i) and Σ_p δ_p δ_pᵀ (o, o)."""
    records: list[tuple[str, Tensor, Tensor]] = []

    def record(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        seen = inputs[0].detach()

        def add(gradient: Tensor) -> None:
            a = positions(module, seen)
            delta = (gradient.movedim(1, -1) if isinstance(module, nn.Conv2d) else gradient).flatten(0, -2)
            records.append((name, a.T @ a, delta.T @ delta))

        output.register_hook(add)

    hooks = [module.register_forward_hook(partial(record, name)) for name, module in layers.items()]
    try:
        yield records
    finally:
        for hook in hooks:
            hook.remove()
