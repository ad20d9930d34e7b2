"""The curvature of the training loss: diagonal, or diagonal in the eigenbases of Kronecker factors.

The Gauss–Newton matrix of a squared loss ℓ = ‖f(θ) − y‖²/d is 2/d JᵀJ, J = ∂f/∂θ. Draw a target from the model's own
predictive Gaussian: it is z ~ N(0, I_d) away from the prediction, and g = √(2/d) Jᵀz has E[g gᵀ] = 2/d JᵀJ. Gradients
towards such pseudo-targets estimate the curvature without the residuals of the training data, unlike the empirical
Fisher matrix (Mlodozeniec et al. 2025).
"""

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional

from diffcredit.baselines.directional import AT_ONCE, Samples, Weights, differentiable
from diffcredit.baselines.gradients.per_image import with_weights
from diffcredit.diffusion.micro_batches import in_smaller_batches
from diffcredit.util.progress import Progress

NUMBERS_AT_ONCE = 2**28
"""Numbers of per-sample gradients in memory at a time."""


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

    def projected(moved: Weights, x_t: Tensor, t: Tensor, condition: Tensor | None, error: Tensor) -> Tensor:
        one = None if condition is None else condition[None]
        prediction = with_weights(model, model.predict, moved, x_t[None], t[None], one)[0]
        return (prediction * error).sum() * math.sqrt(2 / error.numel())

    axes = (None, 0, 0, None if condition is None else 0, 0)
    with differentiable(model.network), torch.no_grad():  # grad builds the graph it needs
        return vmap(grad(projected), in_dims=axes)(dict(weights), x_t, t, condition, errors)


def _inputs(samples: Samples, places: range) -> tuple[Tensor, Tensor, Tensor | None]:
    batch, t, noise = samples.at(places)
    return samples.model.noise_schedule.add_noise(batch.x, noise, t), t, batch.condition


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
