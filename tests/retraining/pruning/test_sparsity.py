"""The sparse model of a transformer, by a model that has nothing but what pruning asks for."""

import copy
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from diffcredit.diffusion import networks
from diffcredit.diffusion.model import Batch
from diffcredit.diffusion.networks import parameter_count
from diffcredit.diffusion.objectives import FlowMatching, NoiseSchedule
from diffcredit.diffusion.settings import Training
from diffcredit.errors import UserError
from diffcredit.retraining.lora import LoRA
from diffcredit.retraining.pruning import Sparsity, sparsity
from diffcredit.retraining.sparsified import Sparsified
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.plugins import build as build_component
from diffcredit.util.plugins import settings_of
from diffusion.tiny_transformers import SIDE, build

DIT, SD3 = "DiTTransformer2DModel", "SD3Transformer2DModel"
IMPORTANCES = ("magnitude", "taylor", "diff-pruning", "random", "reinitialised")


class Transformer:
    """A DiT that predicts four channels of noise or velocity, all images of label 1."""

    time_steps = 1000
    device = torch.device("cpu")
    fingerprint = "of the weights"

    def __init__(self, network: nn.Module, objective: Any = None) -> None:
        self.network, self.objective = network, objective or NoiseSchedule({})

    def clone(self) -> "Transformer":
        return Transformer(copy.deepcopy(self.network), self.objective)

    def loss(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
        labels = torch.ones(len(batch), dtype=torch.long)
        x_t = self.objective.add_noise(batch.x, noise, t)
        predicted = self.network(x_t, timestep=t, class_labels=labels).sample
        return (predicted - self.objective.target(batch.x, noise, t)).square().mean(dim=(1, 2, 3))


def context(model: Any, seed: int = 3) -> Any:
    x = torch.randn(4, 4, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    batch = Batch(x, x, torch.arange(4))
    where = {"folder": Path("there"), "load": None, "contributions": None, "progress": None}
    return SimpleNamespace(base=model, seed=seed, data=lambda: batch, training=Training(steps=2), **where)


@pytest.fixture(autouse=True)
def few_time_steps(monkeypatch):
    monkeypatch.setattr("diffcredit.retraining.pruning.channels.TIME_STEPS", 3)


def shapes(network: nn.Module) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in network.named_parameters()}


@pytest.mark.parametrize("depth", [None, 0.75])
@pytest.mark.parametrize("importance", IMPORTANCES)
def test_a_transformer_loses_heads_units_and_blocks(importance, depth):
    model = Transformer(build(DIT))
    settings = Sparsity(parameters=0.6, importance=importance, multiple=4, depth=depth)
    pruned, again = (settings.pruned(context(model)).network for _ in range(2))
    assert parameter_count(pruned) == pytest.approx(0.6 * parameter_count(model.network), rel=0.02)
    assert len(pruned.transformer_blocks) == (4 if depth is None else 3)
    assert shapes(settings.outline(model).network) == shapes(pruned)
    assert all(one.equal(other) for one, other in zip(pruned.parameters(), again.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in [*model.network.parameters(), *pruned.parameters()])


def test_reinitialised_keeps_the_structure_alone():
    model = Transformer(build(DIT))
    by_magnitude, fresh = (
        Sparsity(parameters=0.6, importance=name, multiple=4, depth=0.75).pruned(context(model)).network
        for name in ("magnitude", "reinitialised")
    )
    assert shapes(fresh) == shapes(by_magnitude)
    for name, parameter in fresh.named_parameters():
        assert not parameter.equal(by_magnitude.get_parameter(name)), name


def test_taylor_drops_what_is_large_and_unused():
    """Units that the last layer of the MLP does not read are as large as can be, and the loss does not see them."""
    model = Transformer(build(DIT))
    with torch.no_grad():
        for block in model.network.transformer_blocks:
            block.ff.net[0].proj.weight[::2] *= 100
            block.ff.net[2].weight[:, ::2] = 0

    def biases(importance: str) -> list[set[float]]:
        small = Sparsity(parameters=0.75, importance=importance, multiple=4).pruned(context(model)).network
        return [set(block.ff.net[0].proj.bias.tolist()) for block in small.transformer_blocks]

    for block, taylor, magnitude in zip(
        model.network.transformer_blocks, biases("taylor"), biases("magnitude"), strict=True
    ):
        bias = block.ff.net[0].proj.bias
        unused, used = set(bias[::2].tolist()), set(bias[1::2].tolist())
        assert 64 < len(taylor) < 128
        assert used < taylor
        assert unused < magnitude


def test_layers_that_the_loss_does_not_see_have_no_gradient():
    """The text's queries in SD3's last block are read by nobody, and so is an unused layer."""
    model = Transformer(build(DIT))
    model.network.unused = nn.Linear(2, 2)
    pruned = Sparsity(parameters=0.7, importance="taylor", multiple=4).pruned(context(model))
    assert parameter_count(pruned.network) < parameter_count(model.network)


# Refusals


def test_diff_pruning_is_refused_for_flow_matching():
    model = Transformer(build(DIT), FlowMatching())
    settings = Sparsity(parameters=0.6, importance="diff-pruning", multiple=4)
    for refused in (lambda: settings.pruned(context(model)), lambda: settings.outline(model)):
        with pytest.raises(UserError, match=r"^importance: 'diff-pruning' leaves out .*; accepted: taylor") as raised:
            refused()
        assert "\n" not in str(raised.value)
    assert Sparsity(parameters=0.6, importance="taylor", multiple=4).pruned(context(model)).network is not None


def test_depth_is_refused_where_there_are_no_blocks():
    config = {"sample_size": 8, "in_channels": 3, "out_channels": 3, **networks.PRESETS["tiny"]}
    model = Transformer(networks.build(config, 0))
    with pytest.raises(
        UserError, match=r"^depth: 0.5 is for transformers that are trained whole, not for UNet2DModel$"
    ):
        Sparsity(depth=0.5).outline(model)


def test_depth_is_refused_for_adapters():
    from peft import LoraConfig

    model = Transformer(build(SD3))
    model.network.add_adapter(LoraConfig(r=2, target_modules=["to_q"]))
    with pytest.raises(UserError, match=r"^depth: 0.5 is for transformers .*, not for a model with LoRA adapters$"):
        Sparsity(depth=0.5).pruned(context(model))
    count = sum(parameter.numel() for name, parameter in model.network.named_parameters() if "lora" in name)
    pruned = Sparsity(parameters=0.5).pruned(context(model)).network
    assert sum(p.numel() for name, p in pruned.named_parameters() if "lora" in name) == pytest.approx(
        count / 2, rel=0.1
    )


def test_depth_is_a_share_in_a_study_file(tmp_path):
    registry = {"sparsified": "diffcredit.retraining.sparsified:Sparsified"}
    made = build_component("sparsified", {"depth": 0.5}, registry, where="retraining", beside=tmp_path)
    assert made.depth == 0.5
    with pytest.raises(UserError, match=r"retraining\.depth"):
        build_component("sparsified", {"depth": 1.5}, registry, where="retraining", beside=tmp_path)


# Identity


def test_without_depth_the_identity_is_that_of_older_studies(monkeypatch):
    monkeypatch.setattr(sparsity, "kept_model", lambda folder, *others, **options: folder)
    on = context(Transformer(build(DIT)))
    settings = Sparsity(parameters=0.6)
    recovery = dataclasses.asdict(settings.recovery(on.training))
    identity = fingerprint(["of the weights", [0.6, "magnitude", 8, recovery], 3])
    assert settings.model(on) == Path("there") / f"sparse-{identity[:12]}"
    assert Sparsity(parameters=0.6, depth=0.5).model(on) != settings.model(on)


def test_a_ledger_records_depth_only_where_it_is_set():
    older = {"parameters", "importance", "multiple", "recover_steps", "recover_learning_rate"}
    assert older <= settings_of(Sparsified(), {}).keys()
    assert "depth" not in settings_of(Sparsified(), {})
    assert settings_of(Sparsified(depth=0.5), {})["depth"] == 0.5
    assert settings_of(LoRA(sparse=Sparsity()), {})["sparse"].keys() == older
    assert settings_of(LoRA(sparse=Sparsity(depth=0.5)), {})["sparse"]["depth"] == 0.5
