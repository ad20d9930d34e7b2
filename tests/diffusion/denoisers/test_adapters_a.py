"""LoRA adapters on the pipelines of ``test_against_pipelines_a``: training, gradients of single images, files."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model_state_dict
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.denoisers.base import Denoiser
from diffcredit.diffusion.objectives import NoiseSchedule, Objective

from .. import tiny_pipelines, tiny_text_pipelines
from .served import Served, served, whole_pipeline

CASES = {
    "stable_diffusion_1": tiny_pipelines.stable_diffusion,
    "sdxl": tiny_text_pipelines.stable_diffusion_xl,
    "sd3": tiny_text_pipelines.stable_diffusion_3,
    "sd35": partial(tiny_text_pipelines.stable_diffusion_3, version="3.5"),
    "flux": tiny_text_pipelines.flux,
    "flux_2_klein": tiny_text_pipelines.flux_2_klein,
}
TEXTS = ["a cat", "the red house", "a cat", ""]
# The last block of Stable Diffusion 3 does not use what its text tokens attend to: no query of theirs has a gradient
WITHOUT_GRADIENT = {"StableDiffusion3Pipeline": ["transformer_blocks.2.attn.add_q_proj"]}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    return served(CASES[request.param](tmp_path_factory.mktemp(request.param) / "pipeline"))


class Prediction(nn.Module):
    """A denoiser's prediction as a module, for ``functional_call``."""

    def __init__(self, denoiser: Denoiser, network: nn.Module) -> None:
        super().__init__()
        self.denoiser, self.network = denoiser, network

    def forward(self, x: Tensor, time: Tensor, condition: Conditions) -> Tensor:
        return self.denoiser.predict(self.network, x, time, condition)


def projections(case: Served) -> list[str]:
    linear = (name for name, module in case.network.named_modules() if isinstance(module, nn.Linear))
    return [name for name in linear if name.endswith(case.denoiser.targets)]


@pytest.fixture(scope="module")
def adapted(case: Served) -> nn.Module:
    network: Any = type(case.network).from_pretrained(case.folder / case.denoiser.component).requires_grad_(False)
    torch.manual_seed(0)
    network.add_adapter(LoraConfig(r=4, lora_alpha=4, target_modules=projections(case), init_lora_weights="gaussian"))
    return network


def trained(network: nn.Module) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}


def loss(case: Served, network: nn.Module, latents: Tensor, condition: Conditions, noise: Tensor, t: Tensor) -> Tensor:
    objective = case.objective(latents.shape[-1])
    x = objective.add_noise(latents, noise, t)
    prediction = case.denoiser.predict(network, x, objective.times(t), condition)
    return (prediction - objective.target(latents, noise, t)).square().mean()


def drawn(objective: Objective, like: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=draws), torch.randint(objective.time_steps, (len(like),), generator=draws)


def test_training_lowers_the_loss_through_every_target(case: Served, adapted: nn.Module) -> None:
    pictures = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(1)) * 2 - 1
    latents, condition = case.encode(pictures), case.conditions(TEXTS, 16)
    objective, before = case.objective(latents.shape[-1]), {n: p.detach().clone() for n, p in trained(adapted).items()}
    assert {name.split(".lora_")[0] for name in before} == set(projections(case))
    fixed = [drawn(objective, latents, seed) for seed in range(1000, 1008)]

    def mean_loss() -> float:
        with torch.no_grad():
            return sum(loss(case, adapted, latents, condition, *draw).item() for draw in fixed) / len(fixed)

    first, optimizer = mean_loss(), torch.optim.AdamW(trained(adapted).values(), lr=1e-2, weight_decay=0.0)
    for step in range(30):
        optimizer.zero_grad()
        loss(case, adapted, latents, condition, *drawn(objective, latents, step)).backward()
        optimizer.step()
    assert mean_loss() < 0.97 * first
    still = {name.split(".lora_")[0] for name, parameter in trained(adapted).items() if parameter.equal(before[name])}
    assert still == set(WITHOUT_GRADIENT.get(case.index["_class_name"], []))


def test_gradients_of_single_images_by_vmap(case: Served, adapted: nn.Module) -> None:
    """The same as one backward pass for each image."""
    channels, side = case.latents(16)
    objective, condition = case.objective(side), case.conditions(TEXTS, 16)
    (x, t), (target, _) = (drawn(objective, torch.zeros(4, channels, side, side), seed) for seed in (5, 6))
    module, time = Prediction(case.denoiser, adapted), objective.times(t)
    weights = {f"network.{name}": parameter.detach() for name, parameter in trained(adapted).items()}

    def of_one(weights: dict[str, Tensor], x: Tensor, time: Tensor, target: Tensor, condition: Conditions) -> Tensor:
        one = {name: each[None] for name, each in condition.items()}
        prediction = functional_call(module, weights, (x[None], time[None], one))
        return (prediction[0] - target).square().mean()

    together = vmap(grad(of_one), in_dims=(None, 0, 0, 0, 0))(weights, x, time, target, condition)
    for i in range(len(x)):
        alone = {name: each[i] for name, each in condition.items()}
        value = of_one(weights, x[i], time[i], target[i], alone)
        assert value.isfinite()
        parameters = trained(adapted)
        prediction = case.denoiser.predict(
            adapted, x[i : i + 1], time[i : i + 1], {n: each[None] for n, each in alone.items()}
        )
        by_one = torch.autograd.grad(
            (prediction[0] - target[i]).square().mean(), list(parameters.values()), materialize_grads=True
        )
        scale = max(each.abs().max().item() for each in by_one)
        for name, gradient in zip(parameters, by_one, strict=True):
            torch.testing.assert_close(together[f"network.{name}"][i], gradient, rtol=0, atol=1e-5 * scale)


def test_a_saved_adapter_gives_the_same_images(case: Served, adapted: nn.Module, tmp_path: Path) -> None:
    """``adapted`` is trained by the first test; noise on B makes the test independent of it."""
    with torch.no_grad():
        for parameter in trained(adapted).values():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)) * 0.05)
    pipeline, fresh, without = whole_pipeline(case), whole_pipeline(case), whole_pipeline(case)
    component = case.denoiser.component
    setattr(pipeline, component, adapted)
    layers = {f"{component}_lora_layers": get_peft_model_state_dict(adapted, adapter_name="default")}
    case.kind.save_lora_weights(tmp_path, **layers)
    names = load_file(tmp_path / "pytorch_lora_weights.safetensors")
    assert {name.split(".", 1)[0] for name in names} == {component}
    assert {name.split(".", 1)[1].split(".lora_")[0] for name in names} == set(projections(case))
    fresh.load_lora_weights(tmp_path)
    expected, loaded, bare = (_images(each) for each in (pipeline, fresh, without))
    assert (expected - loaded).abs().max().item() == 0.0
    assert (expected - bare).abs().max() > 1e-3


def _images(pipeline: Any) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    size = {"height": 16, "width": 16, "num_inference_steps": 3}
    return pipeline(prompt="a cat", generator=generator, output_type="latent", **size).images


def test_the_sampled_time_is_the_objectives(case: Served) -> None:
    """A sampler's times are what training tells the network too: integers, or σ in [0, 1]."""
    objective = case.objective(case.latents(16)[1])
    times = objective.sampler("ddim", 4).times
    trained_on = objective.times(torch.arange(objective.time_steps))
    assert times.dtype == trained_on.dtype
    assert times.min() >= 0
    assert times.max() <= (objective.time_steps if isinstance(objective, NoiseSchedule) else 1)
