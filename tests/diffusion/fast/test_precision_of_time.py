"""The time is not rounded to bf16, in which neighbouring noise levels would be the same."""

import pytest
import torch
from torch import Tensor

from diffcredit.diffusion.diffusers_model import Guide
from diffcredit.diffusion.fast.functional import functions_of
from diffcredit.diffusion.session import Session

from .tiny_models import KINDS, Base, TinyModel

IMAGES = 8


def predict(model: TinyModel, x: Tensor, time: Tensor, guide: Guide, numbers: torch.dtype) -> Tensor:
    """By the fast path, with adapters in ``numbers``."""
    functions = functions_of(Session(), model, 1, numbers)
    weights = {name: each.detach() for name, each in model.network.named_parameters() if each.requires_grad}
    frozen = functions.frozen(model)
    prediction = functions.prediction([*weights, *frozen], guide)
    rounded = [weight.to(numbers) for weight in weights.values()]
    return prediction(*rounded, *frozen.values(), x, time, *guide.tensors)[0]


def autocast(model: TinyModel, x: Tensor, time: Tensor, guide: Guide, numbers: torch.dtype) -> Tensor:
    """Step by step."""
    with torch.no_grad(), torch.autocast("cpu", numbers):
        return model.guided(x, time, guide).float()


@pytest.mark.parametrize(
    ("base", "numbers", "way"),
    [
        (torch.bfloat16, torch.float32, predict),
        (torch.bfloat16, torch.bfloat16, predict),
        (torch.float32, torch.bfloat16, predict),
        (torch.float32, torch.bfloat16, autocast),
        (torch.bfloat16, torch.bfloat16, autocast),
    ],
)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore:Mismatch dtype")  # torch's, of a norm under autocast
def test_a_network_in_bf16_is_told_the_exact_time(name, base, numbers, way):
    """Its predictions are nearer to the exact ones than those for the rounded time are."""
    kind, exact = KINDS[name], Base(name).adapted(0)
    x = torch.randn(IMAGES, *kind.shape, generator=torch.Generator().manual_seed(3))
    time = torch.linspace(0.1, 0.9, IMAGES) + 0.0013 if kind.flow else torch.linspace(101, 901, IMAGES).long()
    guide = exact.guide(range(IMAGES), exact.denoiser.unguided)
    expected = predict(exact, x, time, guide, torch.float32)
    rounded = predict(exact, x, time.bfloat16().to(time.dtype), guide, torch.float32)
    found = way(Base(name, base).adapted(0), x, time, guide, numbers)
    assert (found - expected).norm() < 0.4 * (rounded - expected).norm()
