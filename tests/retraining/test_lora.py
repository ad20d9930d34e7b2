"""LoRA fine-tuning: what it changes, what it leaves, whom it refuses."""

import copy
import dataclasses
import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from diffcredit.diffusion import Training, training
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.training import train
from diffcredit.errors import UserError
from diffcredit.retraining.base import RetrainingContext
from diffcredit.retraining.lora import LoRA
from diffusion.tiny_pipelines import unet

from .test_retrainings import context, contributions

TWO = np.array([[True, False, True]])
PLAIN = Training(steps=2, batch_size=4, optimizer="sgd", gradient_clip=None)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> RetrainingContext:
    """A network with attention in three places."""
    network = unet(size=8)
    model = DDPM(network, dict(network.config))
    train(model, model.encode(contributions().images), Training(steps=2, batch_size=4, learning_rate=1e-3), seed=0)
    return dataclasses.replace(context(tmp_path_factory.mktemp("lora")), base=model, training=PLAIN)


def updates(base: RetrainingContext, seed: int = 1, **options) -> dict[str, Tensor]:
    """What was added to each of the weights."""
    retraining = LoRA(**{"steps": 1, "learning_rate": 0.1, "average_tail": None, "dropout": 0.0, **options})
    retraining.prepare(base)
    (model,) = retraining.models_for(TWO, [seed])
    before = base.base.network.state_dict()
    return {name: tensor - before[name] for name, tensor in model.network.state_dict().items()}


def test_the_projections_get_updates_of_the_rank_and_nothing_else_changes(base):
    found = updates(base, rank=2, steps=2)
    projections = [name for name in found if name.endswith(("to_q.weight", "to_k.weight", "to_v.weight"))]
    attentions = [name for name, module in base.base.network.named_modules() if name.endswith("to_out")]
    assert len(projections) == 3 * len(attentions) > 3
    for name, update in found.items():
        if name in projections:
            assert np.linalg.matrix_rank(update.numpy(), tol=1e-3 * update.abs().max().item()) == 2, name
        else:
            assert not update.any(), name


def test_the_first_step_goes_down_and_with_the_square_of_alpha(base):
    """B = 0 at first, so after one step at the rate η, B = −η s G Aᵀ and ΔW = s B A = −η s² G Aᵀ A, s = alpha/rank."""
    some, twice = (updates(base, rank=2, alpha=alpha) for alpha in (4.0, 8.0))
    batches = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(training, "train", lambda model, data, *_, **__: batches.append(data))
        updates(base)
    # the gradient on the step's own images, time steps and noises: a step of descent on the whole network goes along it
    whole = base.base.clone()
    train(whole, batches[0], dataclasses.replace(PLAIN, steps=1, learning_rate=0.1), seed=1)
    after, before = whole.network.state_dict(), base.base.network.state_dict()
    for name, update in some.items():
        torch.testing.assert_close(twice[name], 4 * update, rtol=1e-3, atol=1e-6)
        if update.any():
            assert (update * (before[name] - after[name])).sum() < 0  # −η s² ‖G Aᵀ‖²


def test_adapters_follow_from_the_seed_alone(base):
    before = torch.random.get_rng_state()
    one, again, other = (updates(base, seed, dropout=0.5, steps=2) for seed in (1, 1, 2))
    assert torch.random.get_rng_state().equal(before)
    assert all(one[name].equal(again[name]) for name in one)
    assert any(not one[name].equal(other[name]) for name in one)


def test_only_the_adapter_is_trained_and_the_rest_is_shared(base, monkeypatch):
    seen = []
    monkeypatch.setattr(training, "train", lambda model, *_, **__: seen.append(model.network))
    retraining = LoRA(rank=2)
    retraining.prepare(base)
    list(retraining.models_for(np.repeat(TWO, 2, axis=0), [1, 2]))
    one, other = (dict(network.named_parameters()) for network in seen)
    for name, parameter in one.items():
        assert parameter.requires_grad == ("lora_" in name)
        assert (parameter is other[name]) == ("lora_" not in name)


def test_who_cannot_have_an_adapter_is_told(base, monkeypatch):
    without = copy.copy(base.base)
    without.network = unet(
        size=8, down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2, add_attention=False
    )
    with pytest.raises(UserError, match="'lora' trains the attention's to_q, to_k, to_v, and this network has no"):
        LoRA().rehearse(without, PLAIN, base.contributions)
    with pytest.raises(UserError, match="has no attention"):
        LoRA().prepare(dataclasses.replace(base, base=without))
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UserError, match=r'needs the package peft: pip install "diffcredit\[lora\]"'):
        LoRA().rehearse(base.base, PLAIN, base.contributions)
