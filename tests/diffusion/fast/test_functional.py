"""Which models share compiled functions."""

import dataclasses
from typing import Any

import pytest
import torch
from diffusers.models.attention_processor import AttnProcessor

from diffcredit.diffusion import networks
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.fast.functional import architecture
from diffcredit.diffusion.objectives import FlowMatching

from ..tiny import CONFIG
from .tiny_models import KINDS, Base, TinyModel, transformer


def unet(seed: int = 0, **changes: Any) -> DDPM:
    return DDPM(networks.build(CONFIG | changes, seed), CONFIG | changes)


def dit(**changes: Any) -> TinyModel:
    kind = dataclasses.replace(KINDS["dit"], network=transformer("DiT", **changes))
    return TinyModel(kind, kind.network())


def test_weights_are_not_part_of_an_architecture():
    assert architecture(unet(0)) == architecture(unet(1))
    base = Base("sd3", torch.bfloat16)  # whose tables of positions are in bf16
    assert architecture(base.adapted(0)) == architecture(base.adapted(1))
    trained = unet(0)
    trained.network.train()
    assert architecture(trained) == architecture(unet(0))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (unet(), unet(attention_head_dim=4)),
        (unet(), unet(freq_shift=1)),
        (unet(), unet(flip_sin_to_cos=False)),
        (unet(), unet(norm_eps=1e-3)),
        (dit(), dit(num_attention_heads=8, attention_head_dim=4)),
        (dit(), dit(upcast_attention=True)),
    ],
)
def test_settings_that_no_shape_shows(one, other):
    """These networks have weights of the same shapes."""
    shapes = [[weight.shape for weight in model.network.parameters()] for model in (one, other)]
    assert shapes[0] == shapes[1]
    assert architecture(one) != architecture(other)


def test_adapters_scales_objectives_processors_and_types():
    base = Base("sd3")
    known = {architecture(base.adapted(0))}

    def differs(model: Any) -> None:
        assert architecture(model) not in known
        known.add(architecture(model))

    scaled = base.adapted(0)
    for module in scaled.network.modules():
        if hasattr(module, "scaling"):
            module.scaling["default"] = 0.5
    differs(scaled)
    differs(Base("sd3", torch.bfloat16).adapted(0))
    other = base.adapted(0)
    other.objective = FlowMatching(shift=3.0)
    differs(other)
    other = base.adapted(0)
    other.denoiser = KINDS["flux"].denoiser
    differs(other)
    one, other = dit(), dit()
    for block in other.network.transformer_blocks:
        block.attn1.set_processor(AttnProcessor())
    assert architecture(one) != architecture(other)
