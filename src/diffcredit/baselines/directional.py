"""The loss of images at fixed time steps and noises: its mean gradient, and each image's derivative in one direction.

d/dε ℓ_i(θ + εv) at ε = 0 is ∇ℓ_i · v. Forward mode gives it for a whole batch at the cost of about two passes through
the network, without any image's own gradient.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from diffcredit.baselines.gradients.per_image import digests, time_steps
from diffcredit.diffusion.micro_batches import in_smaller_batches
from diffcredit.diffusion.model import Batch, DiffusionModel, Images
from diffcredit.errors import UserError
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.progress import Progress, silent
from diffcredit.util.seeds import derive_seed

AT_ONCE = 64
"""Samples that go through the network together; fewer where the memory runs out."""

Weights = Mapping[str, Tensor]
"""A number for every trained parameter: tensors by the parameters' names."""


class Sampled(Protocol):
    """Noisy images, each with its time step and noise, and the model that they are shown to."""

    @property
    def model(self) -> DiffusionModel: ...

    def __len__(self) -> int: ...

    def at(self, places: range) -> tuple[Batch, Tensor, Tensor]:
        """The images (b), time steps (b,) and noises (b, c, h, w) of contiguous samples."""
        ...


@dataclass(frozen=True, eq=False)
class Samples:
    """m images at J = ``time_steps`` time steps each, with the time steps and noises of all baselines that look at
    gradients. Sample i·J + j is image i at t_j with a noise that follows from (``seed``, digest_i, j)."""

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
        """The images as the model sees them."""
        told = partial(self.progress, "encoding images")
        return self.model.encode(self.images, self.captions, mirrored=False, on_image=told)

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

    def of_images(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """(m,): the mean of each image's ``numbers`` (m·J,)."""
        return numbers.reshape(-1, self.time_steps).mean(axis=1)

    def normal(self, places: range, *parts: int | str) -> Tensor:
        """(b, c, h, w) standard normal numbers that follow from the samples' content and ``parts``."""
        drawn = []
        for image, step in (divmod(place, self.time_steps) for place in places):
            generator = torch.Generator().manual_seed(derive_seed(self.seed, self.digests[image], step, *parts))
            drawn.append(torch.randn(self.data.x.shape[1:], generator=generator))
        return torch.stack(drawn).to(self.data.x.device, self.data.x.dtype)


def mean_gradient(
    samples: Sampled, names: Sequence[str], report: Callable[[int, int], None] | None = None, at_once: int = AT_ONCE
) -> dict[str, Tensor]:
    """ḡ = ∇ of the mean loss of all samples, with respect to the named parameters. ``report(done, total)`` is told."""
    model = samples.model
    parameters = dict(model.network.named_parameters())
    weights = [parameters[name] for name in names]
    total = [torch.zeros_like(weight) for weight in weights]

    def add(places: range) -> None:
        loss = model.loss(*samples.at(places)).sum() / len(samples)
        torch._foreach_add_(total, torch.autograd.grad(loss, weights, materialize_grads=True))
        if report is not None:
            report(places.stop, len(samples))

    with differentiable(model.network):
        in_smaller_batches(add, len(samples), at_once)
    return dict(zip(names, total, strict=True))


def derivatives(
    samples: Sampled, direction: Weights, report: Callable[[int, int], None] | None = None, at_once: int = AT_ONCE
) -> NDArray[np.float64]:
    """(len(samples),): ∇ℓ_i · v of each sample i, v = ``direction``."""

    def of(places: range) -> NDArray[np.float64]:
        found = _derivatives(samples.model, *samples.at(places), direction)
        if report is not None:
            report(places.stop, len(samples))
        return found

    return np.concatenate(in_smaller_batches(of, len(samples), at_once))


def _derivatives(
    model: DiffusionModel, batch: Batch, t: Tensor, noise: Tensor, direction: Weights
) -> NDArray[np.float64]:
    """(b,): d/dε of each sample's loss at θ + εv, ε = 0."""
    weights = {name: p.detach() for name, p in model.network.named_parameters() if name in direction}

    def losses(moved: Weights) -> Tensor:
        return with_weights(model, model.loss, moved, batch, t, noise)

    with differentiable(model.network), torch.no_grad():
        try:
            found = jvp(losses, (weights,), ({name: direction[name] for name in weights},))[1]
        except NotImplementedError as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"the model's network has a layer without forward-mode derivatives ({reason})") from None
    return found.double().cpu().numpy()


def with_weights(model: DiffusionModel, function: Callable[..., Tensor], weights: Weights, *arguments: Any) -> Tensor:
    """``function`` of the model, such as its loss, as if its network had these weights."""
    named = {f"network.{name}": weight for name, weight in weights.items()}
    return functional_call(_OfNetwork(model.network, function), named, arguments)


class _OfNetwork(nn.Module):
    """A function that calls a network, as a module, in which torch exchanges the network's weights."""

    def __init__(self, network: nn.Module, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.network, self.function = network, function

    def forward(self, *arguments: Any) -> Tensor:
        return self.function(*arguments)


@contextmanager
def differentiable(network: nn.Module) -> Generator[None]:
    """Within, the network is in evaluation mode and computes so that every derivative of torch.func exists.

    Fused attention has no forward mode, and that of GroupNorm takes contiguous numbers only, tangents included.
    """
    training = network.training
    norms = [module for module in network.modules() if isinstance(module, nn.GroupNorm)]
    hooks = [norm.register_forward_pre_hook(_contiguous) for norm in norms]
    network.eval()
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        network.train(training)
        for hook in hooks:
            hook.remove()


def _contiguous(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return inputs[0].clone(memory_format=torch.contiguous_format), *inputs[1:]
