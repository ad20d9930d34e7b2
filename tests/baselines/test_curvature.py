import math

import numpy as np
import pytest
import torch
from torch import nn

from diffcredit.baselines.derivatives import Curvature, Samples, curvature, has_factors, positions
from diffcredit.util.progress import silent
from diffusion import tiny_pipelines

from .linear_models import D, every_direction, gauss_newton, images, layers, linear, narrowing, widening
from .made_up import contributions, tiny_model

DEEP = (narrowing, lambda: nn.Linear(5, D, bias=False))
BENT = (narrowing, nn.Tanh, widening)


@pytest.fixture
def exact_targets(monkeypatch):
    monkeypatch.setattr(Samples, "normal", every_direction(Samples.normal))


def estimated(samples, draws=D, *, kronecker):
    weights = {name: p.detach() for name, p in samples.model.network.named_parameters() if p.requires_grad}
    return curvature(samples, weights, draws, kronecker, silent)


def samples_of(*modules, count=7, time_steps=3):
    return Samples(layers(*modules), images(count), None, time_steps, seed=2)


def assert_solves(found, exact, damping=0.05):
    """(F + λI)⁻¹ g against the explicit matrix of every parameter."""
    generator = torch.Generator().manual_seed(5)
    shapes = {name: each.shape for name, each in found.moments.items()}
    gradient = {name: torch.randn(shape, generator=generator).double() for name, shape in shapes.items()}
    solved = found.solve(gradient, damping)
    for name, matrix in exact.items():
        expected = torch.linalg.solve(matrix + damping * torch.eye(len(matrix)).double(), gradient[name].flatten())
        torch.testing.assert_close(solved[name].flatten(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("modules", [(linear,), DEEP, BENT])
def test_the_diagonal_is_that_of_the_gauss_newton_matrix(modules, exact_targets):
    samples = samples_of(*modules)
    found, exact = estimated(samples, kronecker=False), gauss_newton(samples)
    assert set(found.moments) == set(exact)
    for name, matrix in exact.items():
        torch.testing.assert_close(found.moments[name].flatten(), matrix.diag(), rtol=1e-10, atol=1e-12)
    assert_solves(found, {name: matrix.diag().diag() for name, matrix in exact.items()})
    trace = sum(matrix.trace() for matrix in exact.values()) / sum(len(matrix) for matrix in exact.values())
    assert found.mean_eigenvalue == pytest.approx(trace.item())


@pytest.mark.parametrize("modules", [(linear,), DEEP])
def test_kronecker_factors_are_exact_where_inputs_and_outputs_are_independent(modules, exact_targets):
    """Of a deep linear network, gradients at the outputs do not depend on the inputs."""
    samples = samples_of(*modules)
    assert_solves(estimated(samples, kronecker=True), gauss_newton(samples))


def test_kronecker_factors_are_exact_for_a_single_sample(exact_targets):
    samples = samples_of(*BENT, count=1, time_steps=1)
    exact = gauss_newton(samples)
    exact["2.bias"] = exact["2.bias"].diag().diag()  # other parameters have a diagonal
    assert_solves(estimated(samples, kronecker=True), exact)


def test_random_pseudo_targets_are_right_on_average():
    samples = samples_of(linear, count=4, time_steps=1)
    found, exact = estimated(samples, 80, kronecker=False), gauss_newton(samples)
    # a mean of 320 terms z² with weights: the standard error is √(2/80) at most, of each of 144 numbers
    ratio = found.moments["0.weight"].flatten() / exact["0.weight"].diag()
    assert (ratio - 1).abs().max() < 4.5 * math.sqrt(2 / 80)
    assert found.mean_eigenvalue == pytest.approx(exact["0.weight"].trace().item() / 144, rel=0.12)


@pytest.mark.parametrize("family", ["pixels", "text"])
def test_the_trace_of_a_u_net_is_the_mean_square_of_pseudo_gradients(family, request):
    if family == "pixels":
        samples = Samples(tiny_model(), contributions().images[:2], None, 2, seed=0)
    else:
        samples = Samples(request.getfixturevalue("text_model"), tiny_pipelines.pictures(2), ["a", "b"], 1, seed=0)
    trained = {name: p for name, p in samples.model.network.named_parameters() if p.requires_grad}
    squares = []
    for place in range(len(samples)):
        batch, t, noise = samples.at(range(place, place + 1))
        x_t = samples.model.objective.add_noise(batch.x, noise, t)
        error = samples.normal(range(place, place + 1), "target", 0) * math.sqrt(2 / noise.numel())
        prediction = samples.model.predict(x_t, t, batch.condition)
        gradient = torch.autograd.grad(prediction, list(trained.values()), error)
        squares.append(sum(each.square().sum().item() for each in gradient))
    count = sum(weight.numel() for weight in trained.values())
    matrices = {name for name, p in trained.items() if p.ndim > 1}
    for kronecker in (False, True):
        found = estimated(samples, 1, kronecker=kronecker)
        assert found.mean_eigenvalue == pytest.approx(np.mean(squares) / count, rel=1e-3)
        assert set(found.left) == set(found.right) == (matrices if kronecker else set())


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 5, 3, padding=1),
        nn.Conv2d(3, 5, (2, 3), stride=2, dilation=(1, 2), padding=(1, 2)),
        nn.Conv2d(3, 5, 1),
        nn.Linear(7, 5),
    ],
)
def test_the_weight_multiplies_each_position(layer):
    inputs = torch.randn(2, 3, 6, 7, generator=torch.Generator().manual_seed(0))
    expected = layer(inputs)
    by_position = (expected.movedim(1, -1) if isinstance(layer, nn.Conv2d) else expected).flatten(0, -2)
    found = positions(layer, inputs) @ layer.weight.flatten(1).T + layer.bias
    torch.testing.assert_close(found, by_position, rtol=1e-4, atol=1e-5)
    assert has_factors(layer)


def test_other_layers_have_no_factors():
    others = [nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3, padding="same"), nn.GroupNorm(2, 4)]
    circular = nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")
    assert not any(has_factors(layer) for layer in [*others, circular])


def test_a_file_keeps_it(exact_targets):
    samples = samples_of(*BENT)
    found = estimated(samples, kronecker=True)
    again = Curvature.read(found.arrays(), torch.device("cpu"))
    gradient = {name: torch.ones_like(each) for name, each in found.moments.items()}
    for name, solved in again.solve(gradient, 0.1).items():
        torch.testing.assert_close(solved, found.solve(gradient, 0.1)[name], rtol=0, atol=0)
