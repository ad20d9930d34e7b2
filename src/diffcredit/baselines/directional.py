"""The loss of images at fixed time steps and noises: its mean gradient, and each image's derivative in one direction.

d/dε ℓ_i(θ + εv) at ε = 0 is ∇ℓ_i · v. Forward-mode differentiation computes it for a whole batch at the cost of about
two passes through the network, without the gradient of any single image.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from diffcredit.baselines.gradients.per_image import digests, normal, time_steps, with_weights
from diffcredit.diffusion.micro_batches import in_smaller_batches
from diffcredit.diffusion.model import Batch, DiffusionModel, Images
from diffcredit.errors import UserError
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.progress import Progress, silent

AT_ONCE = 64
"""Samples that go through the network together; fewer if the memory runs out."""

Weights = Mapping[str, Tensor]
"""Tensors by the names of the trained parameters, shaped like them."""
Report = Callable[[int, int], None] | None
"""Is called with the number of samples done, and of all."""
Part = Callable[[range], tuple[Batch, Tensor, Tensor]]
"""Returns the images (b), time steps (b,) and noises (b, c, h, w) of contiguous samples."""


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
