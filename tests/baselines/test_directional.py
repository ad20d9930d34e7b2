import numpy as np
import pytest
import torch
from torch import nn

from diffcredit.baselines.derivatives import Samples, derivatives, mean_gradient
from diffcredit.baselines.gradients.per_image import digests, noises, time_steps
from diffcredit.errors import UserError
from diffusion import tiny_pipelines

from .linear_models import FlatModel, images
from .made_up import contributions, tiny_model


def pixel_samples():
    return Samples(tiny_model(), contributions().images[:3], None, 2, seed=4)


@pytest.fixture
def text_samples(text_model):
    return Samples(text_model, tiny_pipelines.pictures(3), ["a", "b", "a"], 1, seed=4)


def along(samples, direction, **options):
    return derivatives(samples.model, samples.at, len(samples), direction, **options)


def direction_of(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    trained = {name: p for name, p in model.network.named_parameters() if p.requires_grad}
    return {name: torch.randn(p.shape, generator=generator) for name, p in trained.items()}


def one_by_one(samples, direction):
    """∇ℓ_i · v from each sample's own gradient."""
    weights = [dict(samples.model.network.named_parameters())[name] for name in direction]
    found = []
    for place in range(len(samples)):
        gradient = torch.autograd.grad(samples.model.loss(*samples.at(range(place, place + 1))).sum(), weights)
        found.append(sum((g * v).sum().item() for g, v in zip(gradient, direction.values(), strict=True)))
    return np.array(found)


@pytest.mark.parametrize("family", ["pixels", "text"])
def test_derivatives_are_products_with_each_samples_gradient(family, request):
    samples = pixel_samples() if family == "pixels" else request.getfixturevalue("text_samples")
    direction = direction_of(samples.model)
    expected = one_by_one(samples, direction)
    assert np.abs(expected).min() > 0.01
    for at_once in (64,) if family == "text" else (64, 4):
        found = along(samples, direction, at_once=at_once)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_the_mean_gradient_is_that_of_the_mean_loss():
    samples = pixel_samples()
    direction = direction_of(samples.model)
    told = []

    def report(*numbers):
        told.append(numbers)

    gradient = mean_gradient(samples.model, samples.at, len(samples), list(direction), report, at_once=4)
    product = sum((gradient[name] * direction[name]).sum().item() for name in direction)
    assert product == pytest.approx(one_by_one(samples, direction).mean(), rel=1e-3)
    assert told == [(4, 6), (6, 6)]


def test_time_steps_and_noises_are_those_of_the_other_gradients():
    samples = pixel_samples()
    shown = contributions().images[:3]
    batch, t, noise = samples.at(range(1, 6))
    expected = noises(digests(shown), 2, (3, 8, 8), 4).flatten(0, 1)
    torch.testing.assert_close(noise, expected[1:6], rtol=0, atol=0)
    assert t.tolist() == time_steps(samples.model, 2).repeat(3)[1:6].tolist() == [750, 250, 750, 250, 750]
    assert batch.rows.tolist() == [0, 1, 1, 2, 2]
    assert not samples.normal(range(1)).equal(samples.normal(range(1), "target", 0))


def test_captions_are_part_of_what_the_model_sees(text_samples):
    first, second, third = text_samples.identity
    other = Samples(text_samples.model, tiny_pipelines.pictures(3), ["a", "a", "b"], 1, seed=4).identity
    assert other[0] == first
    assert other[1] != second
    assert other[2] != third


def test_the_network_stays_as_it_was():
    samples = pixel_samples()
    network = samples.model.network.train()
    network.enable_gradient_checkpointing()
    before = {name: p.clone() for name, p in network.named_parameters()}
    # a part of the parameters is a direction too
    direction = {name: v for name, v in direction_of(samples.model).items() if name.startswith("conv_out")}
    expected = one_by_one(samples, direction)
    np.testing.assert_allclose(along(samples, direction), expected, rtol=1e-3, atol=1e-3)
    assert network.training
    assert all(not module._forward_pre_hooks for module in network.modules())
    assert all(p.equal(before[name]) and p.grad is None for name, p in network.named_parameters())


class Distances(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(12))

    def forward(self, x):
        return x * torch.cdist(x * self.weight, x)[:, :1]


def test_a_layer_without_forward_mode_is_named():
    samples = Samples(FlatModel(Distances()), images(2), None, 1, seed=0)
    with pytest.raises(UserError, match=r"without forward-mode derivatives \(.*cdist"):
        along(samples, {"weight": torch.ones(12, dtype=torch.float64)})
