"""Small models in float64 whose curvature is known: linear maps of the flattened noisy image, and one that is not."""

import numpy as np
import torch
from torch import nn

from diffcredit.contributions import Contributions
from diffcredit.diffusion.model import Batch

SIDE, D = 2, 12


class Schedule:
    def add_noise(self, x, noise, t):
        return 0.8 * x + 0.6 * noise


class FlatModel:
    """Predicts the noise from 0.8 x + 0.6 noise, whatever the time step."""

    time_steps = 100
    device = torch.device("cpu")
    objective = Schedule()
    prompts = ()

    def __init__(self, network):
        self.network = network.double()

    @property
    def fingerprint(self):
        return str([p.sum().item() for p in self.network.parameters()])

    def encode(self, images, captions=None, *, mirrored=True, on_image=None):
        x = torch.from_numpy(images).permute(0, 3, 1, 2).double() / 127.5 - 1
        return Batch(x, x, torch.arange(len(x)))

    def predict(self, x_t, t, condition=None):
        return self.network(x_t.flatten(1)).unflatten(1, x_t.shape[1:])

    def loss(self, batch, t, noise):
        x_t = self.objective.add_noise(batch.x, noise, t)
        return (self.predict(x_t, t) - noise).square().mean(dim=(1, 2, 3))


def layers(*modules, seed=0):
    network, generator = nn.Sequential(*[module() for module in modules]), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    return FlatModel(network)


def linear():
    return nn.Linear(D, D, bias=False)


def narrowing():
    return nn.Linear(D, 5, bias=False)


def widening():
    return nn.Linear(5, D)


def images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)


def contributions(count, seed=0):
    names = tuple(f"{index:02d}" for index in range(count))
    return Contributions(images(count, seed), np.arange(count) % 2, ("a", "b"), names, images(0))


def every_direction(normal):
    """In place of random pseudo-errors: √d e_k for k = 0..d−1, whose mean of z zᵀ is the identity exactly."""

    def drawn(samples, places, *parts):
        if not parts:
            return normal(samples, places)
        errors = torch.zeros(len(places), D, dtype=torch.float64)
        errors[:, parts[1]] = D**0.5
        return errors.unflatten(1, (3, SIDE, SIDE))

    return drawn


def gauss_newton(samples):
    """{name: 2/d E JᵀJ} of each parameter alone, from explicit Jacobians."""
    model = samples.model
    batch, t, noise = samples.at(range(len(samples)))
    x_t = model.objective.add_noise(batch.x, noise, t).flatten(1)
    weights = dict(model.network.named_parameters())
    found = {}
    for name in weights:

        def predicted(weight, name=name):
            return torch.func.functional_call(model.network, {**weights, name: weight}, (x_t,))

        jacobian = torch.autograd.functional.jacobian(predicted, weights[name].detach()).flatten(2)
        found[name] = torch.einsum("bdp,bdq->pq", jacobian, jacobian) * 2 / D / len(samples)
    return found
