import math

import numpy as np
import pytest
import torch

from diffcredit.diffusion import Sampling
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.errors import DiffcreditError

from . import tiny


@pytest.fixture(scope="module")
def model() -> DDPM:
    """A network whose outputs depend on its inputs everywhere, as a trained one's do."""
    return tiny.model(seed=3)


def test_an_image_depends_on_its_seed_alone(model):
    seeds = list(range(9))
    together = model.sample(seeds, 5)
    for batch_size in (1, 4):
        assert tiny.nearly_equal(model.sample(seeds, 5, batch_size), together)
    assert tiny.nearly_equal(model.sample([8, 3], 5), together[[8, 3]])
    assert not tiny.nearly_equal(together[:1], together[1:2])


def test_initial_noises_are_bitwise_those_of_their_seeds(model, monkeypatch):
    seen = []
    monkeypatch.setattr(
        DDPM, "call", lambda self, x, time, condition, guidance=None: seen.append(x.clone()) or torch.zeros_like(x)
    )
    model.sample(range(5), 1, batch_size=3)
    for seed, noise in enumerate(torch.cat(seen)):
        assert noise.equal(torch.randn(3, tiny.SIDE, tiny.SIDE, generator=torch.Generator().manual_seed(seed)))


def test_sampling_does_not_touch_torchs_own_random_numbers(model):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    model.sample([0], 2)
    model.untrained(5)
    assert torch.rand(3).equal(expected)


def test_images_that_are_no_numbers_are_refused(model):
    broken = model.clone()
    with torch.no_grad():
        next(broken.network.parameters()).fill_(math.nan)
    with pytest.raises(DiffcreditError, match="not finite"):
        broken.sample([0], 2)


def test_encode(model):
    pictures = tiny.images(3)
    pictures[0, 0, 0] = [0, 255, 51]
    batch = model.encode(pictures)
    expected = pictures.transpose(0, 3, 1, 2).astype(np.float64) / 127.5 - 1
    np.testing.assert_allclose(batch.x.numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(batch.flipped.numpy(), expected[..., ::-1], atol=1e-6)
    assert batch.x[0, :, 0, 0].tolist() == pytest.approx([-1, 1, -0.6])
    assert batch.rows.tolist() == [0, 1, 2]
    assert batch.condition is None


@pytest.mark.parametrize(
    ("preset", "side", "message"),
    [
        ("tiny", 30, "resolution: 30 .*halves it 2 times; accepted: multiples of 4"),
        ("ddpm-cifar", 36, "multiples of 8"),
        ("huge", 32, "'huge' is unknown; accepted: tiny, mini, light, small, ddpm-cifar"),
    ],
)
def test_a_resolution_that_does_not_fit_and_an_unknown_preset_are_refused(preset, side, message):
    tiny.refused(message, DDPM.create, preset, side, 0)


def test_a_study_may_not_ask_for_more_sampling_than_time_steps():
    from pydantic import TypeAdapter, ValidationError

    assert TypeAdapter(Sampling).validate_python({"steps": 1000}).steps == 1000
    with pytest.raises(ValidationError, match="1000"):
        TypeAdapter(Sampling).validate_python({"steps": 1001})
    assert list(Sampling(images=3, seed=5).seeds) == [5, 6, 7]
