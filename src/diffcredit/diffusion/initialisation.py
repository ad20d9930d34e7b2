"""The initialisation of a network's own parameters, as on construction."""

from collections.abc import Callable, Mapping
from typing import Any

from diffusers.models.attention import BasicTransformerBlock
from diffusers.models.embeddings import GaussianFourierProjection
from diffusers.models.normalization import RMSNorm
from diffusers.models.transformers.pixart_transformer_2d import PixArtTransformer2DModel
from diffusers.models.transformers.sana_transformer import SanaTransformer2DModel, SanaTransformerBlock
from diffusers.models.transformers.transformer_z_image import ZImageTransformer2DModel
from torch import nn

from diffcredit.errors import UserError

LAYERS = (nn.Conv2d, nn.Linear, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.Embedding)
"""Layers that initialise themselves, and whose users in diffusers leave it at that."""


def _modulation(parameter: nn.Parameter) -> None:
    nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)


def _fixed(parameter: nn.Parameter) -> None:
    """Random features that are never trained stay as they are."""


BARE: Mapping[type[nn.Module], Mapping[str, Callable[[nn.Parameter], Any]]] = {
    RMSNorm: {"weight": nn.init.ones_, "bias": nn.init.zeros_},
    BasicTransformerBlock: {"scale_shift_table": _modulation},
    PixArtTransformer2DModel: {"scale_shift_table": _modulation},
    SanaTransformerBlock: {"scale_shift_table": _modulation},
    SanaTransformer2DModel: {"scale_shift_table": _modulation},
    ZImageTransformer2DModel: dict.fromkeys(("x_pad_token", "cap_pad_token", "siglip_pad_token"), nn.init.zeros_),
    GaussianFourierProjection: {"weight": _fixed},
}
"""How each parameter of a module is drawn that has no method for it."""


def redraw(name: str, module: nn.Module) -> None:
    """Draw the parameters of ``module`` itself anew, in place; its shapes stay. Raises a UserError for parameters whose
    initialisation is unknown: they would keep what was learned. ``name`` is the module's in the network."""
    if isinstance(module, LAYERS):
        module.reset_parameters()
        return
    known = BARE.get(type(module), {})
    for key, parameter in module.named_parameters(recurse=False):
        if key not in known:
            raise UserError(
                f"model: the parameter {f'{name}.{key}'.lstrip('.')!r} of {type(module).__name__} cannot be drawn "
                "anew, since its initialisation is not known; this network has no untrained copy"
            )
        known[key](parameter)
