"""The loss of images at fixed time steps and noises: its mean gradient, and each image's derivative in one direction.

d/dε ℓ_i(θ + εv) at ε = 0 is ∇ℓ_i · v. Forward-mode differentiation computes it for a whole batch at the cost of about
two passes through the network, without the gradient of any single image.
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
"""Samples that go through the network together; fewer if the memory runs out."""

Weights = Mapping[str, Tensor]
"""Tensors by the names of the trained parameters, shaped like them."""


class Sampled(Protocol):
    """Images, each with a time step and a noise, and the model whose loss is taken."""

    @property
    def model(self) -> DiffusionModel: ...

    def __len__(self) -> int: ...

    def at(self, places: range) -> tuple[Batch, Tensor, Tensor]:
        """Return the images (b), time steps (b,) and noises (b, c, h, w) of contiguous samples."""
        ...


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

    def of_images(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (m,): the mean of each image's ``numbers`` (m·J,)."""
        return numbers.reshape(-1, self.time_steps).mean(axis=1)

    def normal(self, places: range, *parts: int | str) -> Tensor:
        """Return (b, c, h, w) standard normal numbers derived from the samples' content and ``parts``."""
        drawn = []
        for image, step in (divmod(place, self.time_steps) for place in places):
            generator = torch.Generator().manual_seed(derive_seed(self.seed, self.digests[image], step, *parts))
            drawn.append(torch.randn(self.data.x.shape[1:], generator=generator))
        return torch.stack(drawn).to(self.data.x.device, self.data.x.dtype)


def mean_gradient(
    samples: Sampled, names: Sequence[str], report: Callable[[int, int], None] | None = None, at_once: int = AT_ONCE
) -> dict[str, Tensor]:
    """Return the gradient of the mean loss of all samples with respect to the named parameters."""
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
    """Return (len(samples),): ∇ℓ_i · v of each sample i, v = ``direction``."""

    def of(places: range) -> NDArray[np.float64]:
        found = _derivatives(samples.model, *samples.at(places), direction)
        if report is not None:
            report(places.stop, len(samples))
        return found

    return np.concatenate(in_smaller_batches(of, len(samples), at_once))


def _derivatives(
    model: DiffusionModel, batch: Batch, t: Tensor, noise: Tensor, direction: Weights
) -> NDArray[np.float64]:
    """Return (b,): d/dε of each sample's loss at θ + εv, ε = 0."""
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


@contextmanager
def differentiable(network: nn.Module) -> Generator[None]:
    """Put the network in evaluation mode and make it compute such that every derivative of torch.func exists.

    Fused attention has no forward mode, and that of GroupNorm accepts contiguous tensors only, tangents included.
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
