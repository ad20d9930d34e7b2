"""Activations that are computed twice instead of kept give the same gradients."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor

from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.denoisers.dit import DiT
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.stepwise import gradient_checkpointing
from diffcredit.diffusion.training import train

from . import tiny, tiny_transformers
from .tiny_pipelines import conditional_unet, pictures, unet


def _of_unet(network: Any) -> Tensor:
    return network(_noise(2, 3, 16, 16), torch.tensor([3, 700])).sample


def _of_conditional_unet(network: Any) -> Tensor:
    return network(_noise(2, 4, 8, 8), torch.tensor([3, 700]), encoder_hidden_states=_noise(2, 5, 12)).sample


def _of_transformer(network: Any) -> Tensor:
    return tiny_transformers.call(network)


def _noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], Tensor]]] = {
    "UNet2DModel": (unet, _of_unet),
    "UNet2DConditionModel": (conditional_unet, _of_conditional_unet),
    **{kind: (partial(tiny_transformers.build, kind), _of_transformer) for kind in tiny_transformers.KINDS},
    "DiTTransformer2DModel": (
        lambda: DiT().prepared(tiny_transformers.build("DiTTransformer2DModel")),
        _of_transformer,
    ),
}


def adapted(network: Any) -> Any:
    """With everything frozen but the factors of the attention's projections: no input has a gradient."""
    network.requires_grad_(False)
    config = LoraConfig(r=2, target_modules=["to_q", "to_v"], init_lora_weights=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return inject_adapter_in_model(config, network)


@pytest.mark.parametrize("change", [lambda network: network, adapted], ids=["whole", "adapter"])
@pytest.mark.parametrize("kind", CASES)
def test_gradients_are_the_same_and_fewer_activations_are_kept(kind, change):
    make, call = CASES[kind]
    network = change(make()).train()
    found, kept = [], []
    for on in (False, True):
        weights = [each for each in network.parameters() if each.requires_grad]
        sizes: list[int] = []

        def keep(tensor: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        with gradient_checkpointing(network, on):
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                loss = call(network).square().mean()
            kept.append(sum(sizes))
            found.append(torch.autograd.grad(loss, weights, materialize_grads=True))
    assert kept[1] < 0.7 * kept[0], kept
    assert any(each.abs().max() > 0 for each in found[0])
    largest = max(each.abs().max().item() for each in found[0])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 * largest)


def test_training_is_the_same_with_dropout():
    """The second computation drops what the first one dropped."""
    results = []
    for on in (False, True):
        model = DDPM(unet(dropout=0.3), unet(dropout=0.3).config)
        settings = Training(steps=3, batch_size=4, learning_rate=1e-2, gradient_checkpointing=on)
        train(model, model.encode(pictures(6)), settings, seed=0)
        results.append(tiny.weights(model))
        assert not any(getattr(each, "gradient_checkpointing", False) for each in model.network.modules())
    for name, one in results[0].items():
        torch.testing.assert_close(results[1][name], one, rtol=1e-5, atol=1e-6)
