"""A network with an adapter, as the tests of training and of saved files need it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor, nn

from diffcredit.diffusion.denoisers.base import Denoiser
from diffcredit.diffusion.denoisers.dit import DiT
from diffcredit.diffusion.denoisers.unet import UNet
from diffcredit.diffusion.objectives import FlowMatching, Objective

from .. import tiny_text_pipelines_b as tiny
from .. import tiny_texts
from .served_b import PROMPTS, SERVED, encoded, load, noise, objective_of

LABELS = {"class_labels": torch.tensor([0, 3, 5])}
Trained = tuple[Denoiser, Any, Objective, dict[str, Tensor]]


def lora(denoiser: Denoiser) -> LoraConfig:
    return LoraConfig(r=2, lora_alpha=2, init_lora_weights="gaussian", target_modules=list(denoiser.targets))


def with_adapter(network: Any, denoiser: Denoiser) -> Any:
    network.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return inject_adapter_in_model(lora(denoiser), network)


def adapter_weights(network: nn.Module) -> dict[str, nn.Parameter]:
    return {name: each for name, each in network.named_parameters() if each.requires_grad}


def of_pipeline(name: str, folder: Path) -> Trained:
    served = SERVED[name]
    served.make(folder)
    pipeline = load(folder)
    network = with_adapter(getattr(pipeline, served.denoiser.component), served.denoiser)
    return (
        served.denoiser,
        network,
        objective_of(served.denoiser, pipeline.scheduler),
        encoded(served.denoiser, folder, PROMPTS),
    )


def of_dit(folder: Path) -> Trained:
    network = DiT().prepared(tiny.dit_network(out_channels=8))
    return DiT(), with_adapter(network, DiT()), FlowMatching(), LABELS


def of_unet(folder: Path) -> Trained:
    from diffusers import UNet2DModel

    network = tiny_texts.seeded(
        UNet2DModel,
        0,
        sample_size=8,
        in_channels=4,
        out_channels=4,
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
        num_class_embeds=6,
    )
    return UNet(), with_adapter(tiny.varied(network), UNet()), FlowMatching(), LABELS


TRAINED: dict[str, Callable[[Path], Trained]] = {
    **{name: lambda folder, name=name: of_pipeline(name, folder) for name in SERVED},
    "dit": of_dit,
    "unet": of_unet,
}


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Three latents, their noise and their time steps."""
    return 0.5 * noise((11, 12, 13)), noise((21, 22, 23)), torch.tensor([900, 500, 100])


def losses(trained: Trained) -> Tensor:
    denoiser, network, objective, conditions = trained
    x, drawn, t = batch()
    prediction = denoiser.predict(network, objective.add_noise(x, drawn, t), objective.times(t), conditions)
    return (prediction - objective.target(x, drawn, t)).square().mean(dim=(1, 2, 3))
