"""Adapters of the served networks learn, have gradients for single images, and load in a fresh pipeline."""

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DiTPipeline
from peft import get_peft_model_state_dict, inject_adapter_in_model, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from .. import tiny_text_pipelines_b as tiny
from ..tiny_text_pipelines_b import SIDE
from .adapters_b import TRAINED, Trained, adapter_weights, batch, lora, losses, with_adapter
from .served_b import PROMPTS, SEEDS, SERVED, STEPS, generators, load


@pytest.mark.parametrize("name", TRAINED)
def test_every_target_is_found(name: str, tmp_path: Path) -> None:
    denoiser, network, _, _ = TRAINED[name](tmp_path / name)
    changed = [each.removesuffix(".lora_A.default.weight") for each in adapter_weights(network) if "lora_A" in each]
    for target in denoiser.targets:
        assert any(each.endswith(f".{target}") for each in changed), target


@pytest.mark.parametrize("name", TRAINED)
def test_training_lowers_the_loss(name: str, tmp_path: Path) -> None:
    trained = TRAINED[name](tmp_path / name)
    weights = adapter_weights(trained[1])
    optimizer = torch.optim.Adam(weights.values(), lr=0.02)
    before = losses(trained).mean().item()
    for _ in range(30):
        optimizer.zero_grad()
        losses(trained).mean().backward()
        optimizer.step()
    assert losses(trained).mean().item() < 0.95 * before
    gradless = SERVED[name].gradless if name in SERVED else frozenset()
    for key, weight in weights.items():
        layer = key.split(".lora_")[0]
        assert (weight.grad is None or not weight.grad.any()) == (layer in gradless), key


class Losses(nn.Module):
    """The loss of one image, as a function of the network's weights."""

    def __init__(self, trained: Trained) -> None:
        super().__init__()
        self.denoiser, self.network, self.objective, _ = trained

    def forward(self, x: Tensor, drawn: Tensor, t: Tensor, condition: dict[str, Tensor]) -> Tensor:
        x, drawn, t = x[None], drawn[None], t[None]
        prediction = self.denoiser.predict(
            self.network,
            self.objective.add_noise(x, drawn, t),
            self.objective.times(t),
            {name: each[None] for name, each in condition.items()},
        )
        return (prediction - self.objective.target(x, drawn, t)).square().mean()


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_single_images(name: str, tmp_path: Path) -> None:
    trained = TRAINED[name](tmp_path / name)
    module = Losses(trained)
    weights = {key: each.detach() for key, each in adapter_weights(module).items()}
    with torch.no_grad():  # LoRA's second factors start at zero
        for index, each in enumerate(weights.values()):
            each.add_(torch.randn(each.shape, generator=torch.Generator().manual_seed(index)), alpha=0.1)
    gradient = grad(lambda weights, *sample: functional_call(module, weights, sample))
    samples = (*batch(), trained[3])

    one_by_one = [
        gradient(weights, *(each[i] for each in samples[:3]), {key: each[i] for key, each in samples[3].items()})
        for i in range(3)
    ]

    if name in SERVED and not SERVED[name].vectorised:
        with pytest.raises(RuntimeError, match="dynamic shape"):
            vmap(gradient, in_dims=(None, 0, 0, 0, 0))(weights, *samples)
        return
    together = vmap(gradient, in_dims=(None, 0, 0, 0, 0))(weights, *samples)
    for key, each in together.items():
        torch.testing.assert_close(each, torch.stack([one[key] for one in one_by_one]), rtol=1e-4, atol=1e-6)


def different(network: Any) -> Any:
    """``network`` with an adapter that does something."""
    with torch.no_grad():
        for index, weight in enumerate(adapter_weights(network).values()):
            weight.copy_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(index)))
    return network


def images(name: str, pipeline: Any) -> Tensor:
    arguments = {"num_inference_steps": STEPS, "generator": generators(SEEDS), "output_type": "pt"}
    if name == "dit":
        return torch.as_tensor(pipeline([1, 2, 3], **arguments).images)
    return torch.as_tensor(
        pipeline(list(PROMPTS), height=SIDE, width=SIDE, **arguments, **SERVED[name].arguments(3.0)).images
    )


@pytest.mark.parametrize("name", [name for name, served in SERVED.items() if served.denoiser.loads_adapters])
def test_the_pipeline_loads_an_adapter(name: str, tmp_path: Path) -> None:
    served = SERVED[name]
    folder = served.make(tmp_path / name)
    pipeline, fresh = load(folder), load(folder)
    before = images(name, fresh)
    component = served.denoiser.component
    network = different(with_adapter(getattr(pipeline, component), served.denoiser))
    layers = {f"{component}_lora_layers": get_peft_model_state_dict(network)}
    type(pipeline).save_lora_weights(tmp_path / "adapter", **layers)

    fresh.load_lora_weights(tmp_path / "adapter")

    ours = images(name, pipeline)
    assert torch.equal(images(name, fresh), ours)
    assert (ours - before).abs().max() > 2 / 255


@pytest.mark.parametrize("name", ["pixart_sigma", "dit"])
def test_peft_loads_an_adapter(name: str, tmp_path: Path) -> None:
    if name == "dit":
        denoiser, folder = TRAINED[name](tmp_path)[0], tiny.dit(tmp_path / name)
        assert not hasattr(DiTPipeline, "load_lora_weights")
    else:
        denoiser, folder = SERVED[name].denoiser, SERVED[name].make(tmp_path / name)
    pipeline, fresh = load(folder), load(folder)
    assert not hasattr(pipeline, "load_lora_weights")
    before = images(name, fresh)
    network = different(with_adapter(pipeline.transformer, denoiser))
    save_file(get_peft_model_state_dict(network), tmp_path / "adapter.safetensors")

    inject_adapter_in_model(lora(denoiser), fresh.transformer)
    result = set_peft_model_state_dict(fresh.transformer, load_file(tmp_path / "adapter.safetensors"))

    assert not result.unexpected_keys
    ours = images(name, pipeline)
    assert torch.equal(images(name, fresh), ours)
    assert (ours - before).abs().max() > 2 / 255
