"""Gradient baselines on every kind of model: together where ``vmap`` can, one image after the other elsewhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diffcredit.baselines import derivatives
from diffcredit.baselines.base import Evidence
from diffcredit.baselines.gradients import GradientSettings
from diffcredit.baselines.gradients.per_image import PerImage, Samples, time_steps
from diffcredit.baselines.registry import BASELINES, baseline_credits
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.settings import Sampling
from diffcredit.diffusion.training import train
from diffcredit.properties.colourfulness import Colourfulness
from diffcredit.util.plugins import build
from diffcredit.util.progress import silent
from diffusion.ways import TRAINING, WAYS, Ways, given

J = 2
SAMPLING = Sampling(images=3, steps=2)
ROUNDING = 2e-5  # relative to the length of a gradient
GRADIENTS = {"time_steps": J, "dimensions": 16}
OPTIONS: dict[str, dict[str, Any]] = {
    "gradient_similarity": GRADIENTS,
    "trak": {**GRADIENTS, "models": 2},
    "d_trak": GRADIENTS,
    "das": GRADIENTS,
    "journey_trak": GRADIENTS,
    "influence_diagonal": {"time_steps": J},
    "influence_kronecker": {"time_steps": J},
    "in_run_shapley": {},
    "conditional_sampling": {"coalitions": 8},
}
QUICK = {
    *(("dit flow labels", method) for method in OPTIONS),
    ("lora z_image", "das"),
    ("lora z_image", "influence_kronecker"),
    ("latent mmdit captions", "influence_kronecker"),
    ("latent mmdit captions", "in_run_shapley"),
    ("lora dit", "trak"),
    ("pretrained dit", "journey_trak"),
    ("lora pixart", "conditional_sampling"),
}
CASES = [
    pytest.param(name, method, marks=() if (name, method) in QUICK else pytest.mark.slow, id=f"{name}-{method}")
    for name, way in WAYS.items()
    for method in OPTIONS
    if (way.texts or method != "conditional_sampling") and not ("pretrained" in name and method in ("in_run_shapley",))
]


def evidence(ways: Ways, name: str, folder: Path) -> Evidence:
    contributions, base = given(name), ways.base(name)

    def replicate(number: int) -> Any:
        model = ways.start(name, number)
        train(model, model.encode(contributions.images, contributions.captions), TRAINING, seed=number)
        return model

    return Evidence(
        contributions=contributions,
        generated=generate(base, SAMPLING),
        prop=Colourfulness(),
        load_model=lambda: base,
        sampling=SAMPLING,
        training=TRAINING,
        start=lambda: (ways.start(name), 1),
        replicate=replicate,
        folder=folder,
    )


@pytest.mark.parametrize(("name", "method"), CASES)
def test_credits(ways, name, method, tmp_path):
    """Finite, the same again, and of no model that was changed meanwhile."""
    before = ways.base(name).fingerprint
    given_to_it = evidence(ways, name, tmp_path)
    baseline = build(method, OPTIONS[method], BASELINES, where="baselines", beside=Path())
    baseline.check(given_to_it)
    found = baseline_credits(baseline, given_to_it)
    assert all(np.isfinite(each.credits).all() for each in found)
    assert np.ptp(found[0].credits) > 0
    if method == "in_run_shapley":
        assert found[0].chosen["distance"] == 0  # the replayed training ends where the base model's did
    again = baseline_credits(
        build(method, OPTIONS[method], BASELINES, where="baselines", beside=Path()),
        evidence(ways, name, tmp_path / "elsewhere"),
    )
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one.credits, other.credits)
    assert ways.base(name).fingerprint == before


def samples_of(ways: Ways, name: str) -> tuple[Any, derivatives.Samples]:
    model, contributions = ways.base(name), given(name)
    captions = contributions.captions and contributions.captions[:3]
    return model, derivatives.Samples(model, contributions.images[:3], captions, J, 0)


def backward(model: Any, number: torch.Tensor) -> torch.Tensor:
    trained = [each for each in model.network.parameters() if each.requires_grad]
    found = torch.autograd.grad(number, trained, materialize_grads=True)
    return torch.cat([each.flatten() for each in found])


def by_backward(model: Any, samples: derivatives.Samples, kind: str) -> Iterator[torch.Tensor]:
    """The gradient of each image, by its formula and one backward pass for each image."""
    with derivatives.differentiable(model.network):
        for image in range(3):
            batch, t, noise = samples.at(range(J * image, J * image + J))
            x_t = model.objective.add_noise(batch.x, noise, t)
            prediction = model.predict(x_t, t, batch.condition)
            if kind == "loss":
                number = (prediction - model.objective.target(batch.x, noise, t)).square().mean()
            else:
                number = prediction.square().mean()
            yield backward(model, number)


def near(one: torch.Tensor, other: torch.Tensor) -> bool:
    return float((one - other).norm()) <= ROUNDING * float(other.norm())


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "loss") for name in WAYS), ("lora pixart", "prediction_norm"), ("lora z_image", "prediction_norm")],
)
def test_gradients_of_single_images(ways, name, kind):
    """Several together are those of the images one after the other."""
    model, samples = samples_of(ways, name)
    batch, _, noise = samples.at(range(3 * J))
    settings = GradientSettings(kind, time_steps=J)
    own = samples.data.condition
    groups = Samples(batch.x.unflatten(0, (3, J)), noise.unflatten(0, (3, J)), time_steps(model, J).expand(3, -1), own)
    together = PerImage(model, settings, busy=3 * J)
    assert together.images_at_once == (1 if name == "lora z_image" else 3)
    rows = together.gradients(groups)
    for row, alone, expected in zip(
        rows, PerImage(model, settings, busy=1).gradients(groups), by_backward(model, samples, kind), strict=True
    ):
        assert near(row, expected)
        assert near(alone, expected)
    assert not near(rows[0], rows[1])


@pytest.mark.parametrize("name", WAYS)
def test_derivatives_in_a_direction(ways, name):
    """Forward mode, against the products with gradients."""
    model, samples = samples_of(ways, name)
    draws = torch.Generator().manual_seed(0)
    direction = {
        key: torch.randn(each.shape, generator=draws)
        for key, each in model.network.named_parameters()
        if each.requires_grad
    }
    flat = torch.cat([each.flatten() for each in direction.values()])
    found = derivatives.derivatives(model, samples.at, 3 * J, direction).reshape(3, J).mean(axis=1)
    expected = np.array([float(each @ flat) for each in by_backward(model, samples, "loss")])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", [name for name in WAYS if name not in ("lora flux", "lora sdxl", "latent dit labels")])
def test_the_curvature_in_its_eigenbases(ways, name):
    """Its moments are those of single gradients towards pseudo-targets, each by a backward pass of its own, and its
    trace is that of the plain squares."""
    model, samples = samples_of(ways, name)
    trained = {key: each.detach() for key, each in model.network.named_parameters() if each.requires_grad}
    found = derivatives.curvature(samples, trained, 1, True, silent)
    moments = {key: torch.zeros_like(each) for key, each in trained.items()}
    trace = 0.0
    for place in range(3 * J):
        batch, t, noise = samples.at(range(place, place + 1))
        error = samples.normal(range(place, place + 1), "target", 0)
        with derivatives.differentiable(model.network):
            prediction = model.predict(model.objective.add_noise(batch.x, noise, t), t, batch.condition)
            gradient = backward(model, (prediction * error).sum() * (2 / error.numel()) ** 0.5)
        trace += float(gradient.square().sum()) / (3 * J)
        parts = gradient.split([each.numel() for each in trained.values()])
        for (key, each), part in zip(trained.items(), parts, strict=True):
            own = part.view_as(each)
            if key in found.left:
                own = (found.left[key].T @ own.flatten(1) @ found.right[key]).view_as(each)
            moments[key] += own.square() / (3 * J)
    size = sum(float(each.sum()) for each in moments.values())
    off = sum(float((each - found.moments[key]).abs().sum()) for key, each in moments.items())
    assert off < 1e-3 * size
    assert found.mean_eigenvalue * sum(each.numel() for each in trained.values()) == pytest.approx(trace, rel=1e-4)
    layers = [
        key
        for key, each in model.network.named_modules()
        if isinstance(each, torch.nn.Linear) and f"{key}.weight" in trained
    ]
    assert {f"{key}.weight" for key in layers} <= set(found.left)
