"""The denoising loss's gradient, which tells what the loss would lose with a weight."""

import torch
from torch import Tensor, nn

from diffcredit.diffusion.protocol import Batch, DiffusionModel

IMAGES = 128
"""How many contributed images the loss is taken on, drawn by seed; all, if there are fewer."""

TIME_STEPS = 100
"""How many evenly spaced time steps."""

MICRO_BATCH = 32
"""How many images are in memory at once."""


def collect_gradients(model: DiffusionModel, data: Batch, *, seed: int, threshold: float) -> None:
    """Leaves the gradient of the loss on ``IMAGES`` of ``data`` at ``TIME_STEPS`` time steps in the trainable
    parameters' ``grad``; see :func:`accumulate`. Each image has one noise, the same at every time step."""
    generator = torch.Generator().manual_seed(seed)
    batch = data.select(torch.randperm(len(data), generator=generator)[:IMAGES])
    noise = torch.randn(batch.x.shape, generator=generator).to(batch.x.device)
    times = torch.linspace(0, model.time_steps - 1, min(TIME_STEPS, model.time_steps)).round().long()
    accumulate(model, batch, noise, times.tolist(), threshold)


def accumulate(model: DiffusionModel, batch: Batch, noise: Tensor, times: list[int], threshold: float) -> None:
    """Sets the trainable parameters' ``grad`` to the gradient of L = mean_t L_t over ``times``, ascending.

    L_t is the mean loss of ``batch`` at time step t with ``noise`` (m, c, h, w). From the first t on whose
    L_t / L_max is under ``threshold``, L_max being the largest so far, time steps are left out (Fang et al.
    2023: there the image is nearly all noise, predicting it is easy, and its gradient says little).
    """
    model.network.eval()
    parameters = [parameter for parameter in model.network.parameters() if parameter.requires_grad]
    total, largest, taken = [torch.zeros_like(parameter) for parameter in parameters], 0.0, 0
    for time in times:
        loss, gradients = _at(model, batch, noise, time, parameters)
        largest = max(largest, loss)
        if loss < threshold * largest:
            break
        torch._foreach_add_(total, gradients)
        taken += 1
    for parameter, gradient in zip(parameters, total, strict=True):
        parameter.grad = gradient / taken


def _at(
    model: DiffusionModel, batch: Batch, noise: Tensor, time: int, parameters: list[nn.Parameter]
) -> tuple[float, list[Tensor]]:
    """The mean loss at one time step and its gradient."""
    mean, gradients = 0.0, [torch.zeros_like(parameter) for parameter in parameters]
    for index in torch.arange(len(batch)).split(MICRO_BATCH):
        t = torch.full((len(index),), time, device=noise.device)
        loss = model.loss(batch.select(index), t, noise[index.to(noise.device)]).sum() / len(batch)
        torch._foreach_add_(gradients, torch.autograd.grad(loss, parameters))
        mean += loss.item()
    return mean, gradients
