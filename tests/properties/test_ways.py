"""The held-out loss of models that follow labels or captions."""

import dataclasses

import pytest
import torch

from diffcredit.properties.base import Context
from diffcredit.properties.heldout_loss import HeldoutLoss
from diffcredit.util.artifacts import fingerprint_arrays
from diffusion.ways import WAYS, given


@pytest.mark.parametrize("name", WAYS)
def test_the_heldout_loss_follows_the_held_out_texts(ways, name):
    model, contributions = ways.base(name), given(name)
    prop = HeldoutLoss(time_steps=2, seed=5)
    state = prop.fit(Context(contributions.images, contributions))
    prop.restore(state)
    value = prop.measure_model(model)
    assert prop.measure_model(model.clone()) == value

    batch = model.encode(contributions.heldout, contributions.heldout_captions, mirrored=False)
    draws, losses = torch.Generator().manual_seed(5), []
    with torch.no_grad():
        for t in (250, 750):  # the middles of two halves
            noise = torch.randn(batch.x.shape, generator=draws)
            at = torch.full((3,), t)
            x_t, target = model.objective.add_noise(batch.x, noise, at), model.objective.target(batch.x, noise, at)
            prediction = model.denoiser.predict(model.network, x_t, model.objective.times(at), batch.condition)
            losses.append((prediction - target).square().mean())
    assert value == pytest.approx(float(sum(losses) / 2), rel=1e-5)

    if contributions.heldout_captions is not None:
        others = dataclasses.replace(contributions, heldout_captions=contributions.heldout_captions[::-1])
        other = HeldoutLoss(time_steps=2, seed=5)
        other_state = other.fit(Context(contributions.images, others))
        other.restore(other_state)
        assert other.measure_model(model) != value
        assert fingerprint_arrays(other_state) != fingerprint_arrays(state)
