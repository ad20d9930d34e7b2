import copy
import dataclasses
from pathlib import Path

import pytest
import torch
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from peft import LoraConfig
from torch import Tensor, nn

from diffcredit.diffusion import networks
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.model import Batch
from diffcredit.diffusion.networks import parameter_count
from diffcredit.errors import UserError
from diffcredit.retraining.base import RetrainingContext
from diffcredit.retraining.pruning import Sparsity, prune_ranks
from diffcredit.retraining.pruning.channels import accumulate, collect_gradients
from diffusion.tiny import CONFIG
from diffusion.tiny_pipelines import conditional_unet

from .test_retrainings import context as pixel_context

IMPORTANCES = ("magnitude", "taylor", "diff-pruning", "random", "reinitialised")
CONFIG = CONFIG | {"block_out_channels": (16, 32), "attention_head_dim": 16}


def context(folder: Path) -> RetrainingContext:
    return dataclasses.replace(pixel_context(folder, seed=3), base=DDPM(networks.build(CONFIG, 1), CONFIG))


def shapes(network: nn.Module) -> list[torch.Size]:
    return [parameter.shape for parameter in network.parameters()]


# The sparse model


@pytest.fixture(scope="module", autouse=True)
def few_time_steps():
    """Gradients at 5 time steps in place of 100: none of these claims depends on their number."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("diffcredit.retraining.pruning.channels.TIME_STEPS", 5)
        yield


@pytest.fixture(scope="module")
def pruned(tmp_path_factory) -> dict[str, DDPM]:
    """Of each importance, from the same context."""
    on = context(tmp_path_factory.mktemp("pruned"))
    return {name: Sparsity(parameters=0.5, importance=name).pruned(on) for name in IMPORTANCES}


@pytest.mark.parametrize("importance", IMPORTANCES)
def test_half_is_half_and_follows_from_the_context_alone(importance, pruned, tmp_path):
    on, model, settings = context(tmp_path), pruned[importance], Sparsity(parameters=0.5, importance=importance)
    before = on.base.fingerprint
    assert parameter_count(model.network) == pytest.approx(parameter_count(on.base.network) / 2, rel=0.02)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert settings.pruned(on).fingerprint == model.fingerprint
    assert torch.get_rng_state().equal(state)
    assert on.base.fingerprint == before
    assert all(parameter.grad is None for parameter in on.base.network.parameters())
    # the rehearsal is as large as the real thing
    assert shapes(settings.outline(on.base.untrained(8)).network) == shapes(model.network)


def test_every_importance_keeps_something_else(pruned):
    """But for diff-pruning, which is taylor as long as the loss is the same at all time steps: before training."""
    names = ("magnitude", "taylor", "random", "reinitialised")
    assert len({pruned[name].fingerprint for name in names}) == len(names)
    assert pruned["diff-pruning"].fingerprint == pruned["taylor"].fingerprint


def test_reinitialised_keeps_the_structure_alone(tmp_path):
    on = context(tmp_path)
    with torch.no_grad():
        for module in on.base.network.modules():
            if isinstance(module, nn.GroupNorm):
                module.bias += 1  # as training would
    by_magnitude, fresh, other = (
        Sparsity(parameters=0.5, importance=name).pruned(dataclasses.replace(on, seed=seed)).network
        for name, seed in (("magnitude", 3), ("reinitialised", 3), ("reinitialised", 4))
    )
    assert shapes(fresh) == shapes(by_magnitude)
    for name, layer in fresh.named_modules():
        if isinstance(layer, nn.GroupNorm):
            assert (layer.bias == 0).all()
        elif isinstance(layer, nn.Conv2d | nn.Linear):
            assert not layer.weight.equal(by_magnitude.get_submodule(name).weight)
            assert not layer.weight.equal(other.get_submodule(name).weight)


def test_taylor_drops_what_is_large_and_unused(tmp_path):
    """The loss does not see channels of the time embedding that nothing reads, however large they are."""
    on = context(tmp_path)
    embedding = on.base.network.time_embedding
    with torch.no_grad():
        embedding.linear_1.weight[::2] *= 100
        embedding.linear_2.weight[:, ::2] = 0
    unused = set(embedding.linear_1.bias[::2].tolist())

    def kept(importance: str) -> set[float]:
        small = Sparsity(parameters=0.95, importance=importance).pruned(on).network.time_embedding.linear_1
        assert small.out_features < embedding.linear_1.out_features
        return set(small.bias.tolist())

    gone = set(embedding.linear_1.bias.tolist()) - kept("taylor")
    assert gone <= unused
    assert unused <= kept("magnitude")


# The gradient


class Planted:
    """The loss of sample x at time step t is w_t · x · |noise|, planted: ``curve[t]`` is w_t."""

    def __init__(self, curve: list[float]) -> None:
        self.network = nn.Module()
        self.network.w = nn.Parameter(torch.tensor(curve))
        self.time_steps = len(curve)
        self.asked: list[int] = []

    def loss(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
        assert not self.network.training, "dropout would blur the gradient"
        self.asked.append(int(t[0]))
        return self.network.w[t] * (batch.x * noise.abs()).mean(dim=(1, 2, 3))


def planted_batch(count: int) -> Batch:
    """Of √1, √2, …, so that with the same as noise x · noise is 1, 2, …"""
    x = torch.arange(1.0, count + 1).sqrt()[:, None, None, None].expand(-1, 3, 2, 2)
    return Batch(x, x, torch.arange(count))


@pytest.mark.parametrize(
    ("curve", "threshold", "taken"),
    [
        ([1.0, 0.5, 0.06, 0.04, 0.9], 0.05, [0, 1, 2]),  # the fourth is under 0.05 of the first: no more are taken
        ([0.5, 1.0, 0.04, 0.9], 0.05, [0, 1]),  # in relation to the largest, not to the first
        ([0.1, 0.01, 1.0, 0.5], 0.05, [0, 1, 2, 3]),  # of those seen so far
        ([1.0, 0.5, 0.06, 0.04, 0.9], 0.0, [0, 1, 2, 3, 4]),
    ],
)
def test_late_time_steps_with_little_loss_are_left_out(curve, threshold, taken, monkeypatch):
    monkeypatch.setattr("diffcredit.retraining.pruning.channels.MICRO_BATCH", 2)
    model, batch = Planted(curve), planted_batch(5)
    accumulate(model, batch, batch.x, list(range(len(curve))), threshold)
    # the mean over the steps taken of L_t = w_t · mean(1, 2, 3, 4, 5), in three pieces
    expected = [3.0 / len(taken) if t in taken else 0.0 for t in range(len(curve))]
    assert model.network.w.grad.tolist() == pytest.approx(expected)
    assert model.asked[: 3 * len(taken)] == [t for t in taken for _ in range(3)]


def test_the_time_steps_are_evenly_spaced(monkeypatch):
    monkeypatch.setattr("diffcredit.retraining.pruning.channels.TIME_STEPS", 100)
    model, batch = Planted([1.0] * 991), planted_batch(2)
    collect_gradients(model, batch, seed=0, threshold=0.0)
    assert model.asked == list(range(0, 991, 10))


# LoRA

TARGETS = ["to_q", "to_k", "to_v", "to_out.0"]
ONE_BLOCK = {
    "down_block_types": ("CrossAttnDownBlock2D",),
    "mid_block_type": None,
    "up_block_types": ("CrossAttnUpBlock2D",),
}


def adapted(**options) -> UNet2DConditionModel:
    """A text-to-image U-Net with a trained adapter, as far as numbers go."""
    network = conditional_unet(block_out_channels=(8,), **ONE_BLOCK)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network.add_adapter(LoraConfig(r=4, lora_alpha=8, target_modules=TARGETS, **options))
        for name, parameter in network.named_parameters():
            if "lora" in name:
                nn.init.normal_(parameter)
    return network.double().eval()  # so that only what was removed can differ


def lora_layers(network: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in network.named_modules() if hasattr(module, "lora_A")}


def lora_count(network: nn.Module) -> int:
    return sum(parameter.numel() for name, parameter in network.named_parameters() if "lora" in name)


def answer(network: nn.Module) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    x, text = torch.randn(2, 4, 8, 8, generator=generator), torch.randn(2, 5, 12, generator=generator)
    return network(x.double(), torch.tensor([3, 700]), encoder_hidden_states=text.double()).sample


def left_over(network: nn.Module, chosen: dict[str, list[int]]) -> int:
    """The parameters of all pairs but the chosen ones."""
    layers = lora_layers(network).items()
    return sum((4 - len(chosen[name])) * (layer.in_features + layer.out_features) for name, layer in layers)


def test_faint_pairs_go_first_and_the_others_stay_as_they_were():
    network, expected = adapted(), adapted()
    chosen = {}
    # other pairs in every layer, one to three of four, made faint in turns of A and B, and zero in what is expected
    for index, (name, layer) in enumerate(lora_layers(network).items()):
        chosen[name] = [(index + k) % 4 for k in range(1 + index % 3)]
        with torch.no_grad():
            if index % 2:
                layer.lora_A["default"].weight[chosen[name]] *= 1e-5
            else:
                layer.lora_B["default"].weight[:, chosen[name]] *= 1e-5
            expected.get_submodule(name).lora_B["default"].weight[:, chosen[name]] = 0
    before, count = lora_layers(copy.deepcopy(network)), left_over(network, chosen)
    prune_ranks(network, count)
    assert lora_count(network) == count
    for name, layer in lora_layers(network).items():
        keep = [pair for pair in range(4) if pair not in chosen[name]]
        a, b = layer.lora_A["default"], layer.lora_B["default"]
        assert a.weight.equal(before[name].lora_A["default"].weight[keep])
        assert b.weight.equal(before[name].lora_B["default"].weight[:, keep])
        assert (a.out_features, b.in_features, layer.r["default"]) == (len(keep),) * 3
        assert layer.scaling["default"] == 2.0 == layer.lora_alpha["default"] / len(keep)
    with torch.no_grad():
        assert answer(network).allclose(answer(expected), atol=1e-6)
        assert not answer(network).allclose(answer(adapted()), atol=1e-3)


def test_pairs_are_ranked_by_the_norm_of_their_update():
    network = adapted()
    norms = {}
    for name, layer in lora_layers(network).items():
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        for pair in range(4):
            norms[name, pair] = 2.0 * torch.linalg.matrix_norm(torch.outer(b[:, pair], a[pair])).item()
    before = {name: layer.lora_A["default"].weight.clone() for name, layer in lora_layers(network).items()}
    prune_ranks(network, 0.5)
    remaining = {
        (name, pair)
        for name, layer in lora_layers(network).items()
        for pair in range(4)
        if any(before[name][pair].equal(row) for row in layer.lora_A["default"].weight)
    }
    gone = norms.keys() - remaining
    assert 0.3 < len(remaining) / len(norms) < 0.7
    # whoever stayed though smaller is the last of its layer
    largest = max(norms[pair] for pair in gone)
    for name, pair in remaining:
        assert norms[name, pair] > largest or sum(other == name for other, _ in remaining) == 1


def test_taylor_drops_pairs_that_the_loss_does_not_see():
    network = adapted()
    answer(network).square().mean().backward()
    chosen, kept = {}, {}
    for index, (name, layer) in enumerate(lora_layers(network).items()):
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        torch.testing.assert_close((a * a.grad).sum(1), (b * b.grad).sum(0), msg="both factors tell the same")
        chosen[name] = [index % 4]
        a.data[chosen[name]] *= 100
        a.grad[chosen[name]] = 0
        kept[name] = a.detach()[[pair for pair in range(4) if pair != index % 4]]
    prune_ranks(network, left_over(network, chosen), importance="taylor")
    for name, layer in lora_layers(network).items():
        assert layer.lora_A["default"].weight.equal(kept[name])


def test_random_pairs_follow_their_seed():
    def ranks(seed: int) -> list[int]:
        network = adapted()
        prune_ranks(network, 0.5, importance="random", seed=seed)
        return [layer.r["default"] for layer in lora_layers(network).values()]

    assert ranks(1) == ranks(1) != ranks(2)


def test_reinitialised_pairs_update_nothing_yet():
    network = adapted()
    prune_ranks(network, 0.5, importance="reinitialised")
    for layer in lora_layers(network).values():
        assert layer.lora_A["default"].weight.abs().sum() > 0
        assert not layer.lora_B["default"].weight.any()


def test_fresh_pairs_go_evenly():
    """An untrained adapter's updates are all zero."""
    network = adapted()
    for layer in lora_layers(network).values():
        nn.init.zeros_(layer.lora_B["default"].weight)
    prune_ranks(network, 0.5)
    assert {layer.r["default"] for layer in lora_layers(network).values()} == {2}


@pytest.mark.parametrize(
    "options", [{}, {"use_rslora": True}, {"rank_pattern": {"to_q": 8}, "alpha_pattern": {"to_q": 4}}]
)
def test_diffusers_saves_and_loads_pruned_pairs(options, tmp_path):
    network = adapted(**options)
    prune_ranks(network, 0.5)
    network.save_lora_adapter(tmp_path)
    again = adapted()
    again.delete_adapters("default")
    again.load_lora_adapter(tmp_path, prefix=None, use_safetensors=True)
    with torch.no_grad():
        assert answer(again).allclose(answer(network), atol=1e-6)
        again.disable_adapters()
        assert not answer(again).allclose(answer(network), atol=1e-3)


def test_pairs_that_cannot_be_are_refused():
    network = adapted()
    before = copy.deepcopy(network.state_dict())
    for parameters, message in (
        (0.1, "would leave a layer empty; the nearest that this architecture allows: "),
        (10**9, "1,000,000,000 is not accepted"),
        (0, "0 is not accepted"),
    ):
        with pytest.raises(UserError, match=rf"^parameters: .*{message}"):
            prune_ranks(network, parameters)
    assert all(network.state_dict()[name].equal(tensor) for name, tensor in before.items())
