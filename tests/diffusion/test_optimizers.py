"""The rules by which weights move, against their equations."""

import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from diffcredit.diffusion import Training
from diffcredit.diffusion.optimizers import learning_rate, make_optimizer
from diffcredit.errors import UserError


def rates(**options) -> list[float]:
    settings = Training(learning_rate=0.6, **options)
    return [learning_rate(settings, step) for step in range(settings.steps)]


def test_rates_with_warm_up():
    assert rates(steps=5, warmup_steps=3) == pytest.approx([0.2, 0.4, 0.6, 0.6, 0.6])
    assert rates(steps=6, warmup_steps=2, schedule="linear") == pytest.approx([0.3, 0.6, 0.6, 0.45, 0.3, 0.15])
    # cos 0, cos 45°, cos 90°, cos 135°
    assert rates(steps=5, warmup_steps=1, schedule="cosine") == pytest.approx(
        [0.6, 0.6, 0.3 * (1 + 0.5**0.5), 0.3, 0.3 * (1 - 0.5**0.5)]
    )
    assert rates(steps=4, schedule="linear") == pytest.approx([0.6, 0.45, 0.3, 0.15])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"warmup_steps": 5}, "warmup_steps 5 leaves none of 5 steps"),
        ({"weight_decay": 0.1}, "weight_decay 0.1 goes with optimizer adamw or adamw8bit, not adam"),
        ({"weight_decay": 0.1, "optimizer": "sgd"}, "not sgd"),
        ({"weight_decay": 0.1, "optimizer": "adam8bit"}, "not adam8bit"),
    ],
)
def test_settings_that_contradict_each_other(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        Training(steps=5, **options)


GRADIENTS = torch.randn(6, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
START = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def moved(settings: Training) -> torch.Tensor:
    weight = nn.Parameter(START.clone())
    optimizer = make_optimizer(settings, [weight])
    for gradient in GRADIENTS:
        weight.grad = gradient.clone()
        optimizer.step()
    return weight.detach()


def test_sgd_is_plain_gradient_descent():
    settings = Training(steps=6, learning_rate=0.1, optimizer="sgd")
    torch.testing.assert_close(moved(settings), START - 0.1 * GRADIENTS.sum(dim=0))


@pytest.mark.parametrize(("name", "decay"), [("adam", 0.0), ("adamw", 0.0), ("adamw", 0.5)])
def test_adam_and_adamw_by_their_equations(name, decay):
    weight, mean, square = START.clone(), torch.zeros(7), torch.zeros(7)
    for k, gradient in enumerate(GRADIENTS, start=1):
        weight = weight * (1 - 0.1 * decay)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        weight = weight - 0.1 * (mean / (1 - 0.9**k)) / ((square / (1 - 0.999**k)).sqrt() + 1e-8)
    settings = Training(steps=6, learning_rate=0.1, optimizer=name, weight_decay=decay)
    torch.testing.assert_close(moved(settings), weight)


@pytest.mark.parametrize("name", ["adam8bit", "adamw8bit"])
def test_eight_bits_without_their_package(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(UserError, match=rf'optimizer: \'{name}\' needs .* pip install "diffcredit\[8bit\]"'):
        make_optimizer(Training(steps=1, optimizer=name), [nn.Parameter(torch.zeros(1))])


@pytest.mark.parametrize(("name", "decay"), [("adam", 0.0), ("adamw", 0.5)])
def test_eight_bits_are_close_to_all_bits(name, decay):
    pytest.importorskip("bitsandbytes")
    settings = Training(steps=20, learning_rate=1e-2, optimizer=name, weight_decay=decay)
    moves = []
    for used in (settings, replace(settings, optimizer=f"{name}8bit")):
        generator = torch.Generator().manual_seed(5)
        weight = nn.Parameter(torch.randn(8192, generator=generator))  # smaller ones stay in 32 bits
        before = weight.detach().clone()
        optimizer = make_optimizer(used, [weight])
        for _ in range(settings.steps):
            weight.grad = torch.randn(8192, generator=generator) + 1
            optimizer.step()
        moves.append(weight.detach() - before)
    exact, coarse = moves
    assert not exact.equal(coarse)
    assert (exact - coarse).norm() < 0.05 * exact.norm()
