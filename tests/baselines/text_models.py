"""A tiny text-to-image model with an adapter that is not zero."""

import torch

from diffcredit.diffusion.pipeline import pipeline
from diffcredit.diffusion.text_to_image import TextToImageLoRA
from diffusion import tiny_pipelines


def adapted(folder):
    """A LoRA whose A and B are random: B is zero at first, and with it all derivatives of A."""
    model = TextToImageLoRA.create(
        pipeline(str(tiny_pipelines.stable_diffusion(folder))), 2, ("a", "b"), None, 16, seed=0
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.network.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return model
