"""Networks of diffusers, built fresh or from stored tensors of pruned shapes; named architectures of U-Nets."""

from collections.abc import Mapping, Sequence
from typing import Any

import diffusers
import torch
from diffusers.models.downsampling import Downsample2D
from diffusers.models.upsampling import Upsample2D
from torch import Tensor, nn

from diffcredit.diffusion import transformers
from diffcredit.diffusion.initialisation import redraw
from diffcredit.diffusion.pruned_transformers import check_widths, stored_config, sync_heads, sync_layers
from diffcredit.diffusion.transformer_sites import TRANSFORMERS, sites
from diffcredit.errors import UserError

UNET = "UNet2DModel"


def _architecture(
    widths: Sequence[int], attention: Sequence[bool], *, layers: int, groups: int, head: int | None, **others: Any
) -> dict[str, Any]:
    """Return the arguments of UNet2DModel, given the width of each resolution and whether it has attention."""
    return {
        "block_out_channels": tuple(widths),
        "layers_per_block": layers,
        "norm_num_groups": groups,
        "down_block_types": tuple("AttnDownBlock2D" if each else "DownBlock2D" for each in attention),
        "up_block_types": tuple("AttnUpBlock2D" if each else "UpBlock2D" for each in reversed(attention)),
        "attention_head_dim": head,
        **others,
    }


PRESETS: dict[str, dict[str, Any]] = {
    # For a laptop's CPU, at 16 px. 0.3 M parameters.
    "tiny": _architecture((16, 32, 32), (False, False, False), layers=1, groups=4, head=16),
    # For fleets on a GPU, at 32 px. 1.1 M parameters.
    "mini": _architecture((32, 64, 64), (False, True, False), layers=1, groups=16, head=32),
    # The same at twice the width. 4.4 M parameters.
    "light": _architecture((64, 128, 128), (False, True, False), layers=1, groups=16, head=32),
    # For one small GPU, at 32 to 64 px. 9.0 M parameters.
    "small": _architecture((64, 128, 128, 128), (False, True, False, False), layers=2, groups=16, head=64),
    # The DDPM of Ho et al. for CIFAR-10 and of the paper's CIFAR-20 study. 35,746,307 parameters.
    "ddpm-cifar": _architecture(
        (128, 256, 256, 256),
        (False, True, False, False),
        layers=2,
        groups=32,
        head=None,
        norm_eps=1e-6,
        downsample_padding=0,
        flip_sin_to_cos=False,
        freq_shift=1,
    ),
    # For latents of 16 to 32 px with many channels, such as TAEF2's. 15.3 M parameters.
    "latent-small": _architecture((96, 192, 192), (False, True, True), layers=2, groups=32, head=32),
    # The U-Net of CompVis/ldm-celebahq-256 and of the paper's CelebA-HQ study. 274,056,163 parameters.
    "ldm-celebahq": _architecture((224, 448, 672, 896), (False, True, True, True), layers=2, groups=32, head=32),
}


def preset_config(preset: str, channels: int, size: int, *, resolution: int) -> dict[str, Any]:
    """Return the architecture of a preset for (channels, size, size); ``resolution`` is the images', for messages."""
    if preset not in PRESETS:
        known = ", ".join((*PRESETS, *transformers.PRESETS))
        raise UserError(f"model.preset: {preset!r} is unknown; accepted: {known}")
    halvings = len(PRESETS[preset]["block_out_channels"]) - 1
    if size % 2**halvings:
        factor = resolution // size
        raise UserError(
            f"contributions.resolution: {resolution} does not fit model.preset {preset!r}, which halves it "
            f"{halvings} times"
            + (f" after the autoencoder's 1/{factor}" if factor > 1 else "")
            + f"; accepted: multiples of {2**halvings * factor}"
        )
    return {"sample_size": size, "in_channels": channels, "out_channels": channels, **PRESETS[preset]}


def build(config: Mapping[str, Any], seed: int, kind: str = UNET) -> Any:
    """Return a freshly initialised network of diffusers' class ``kind``, with the same weights for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network_class(kind)(**config).eval()


def network_class(kind: str) -> type[nn.Module]:
    """Return diffusers' class of this name, one that can be built and pruned."""
    if kind != UNET and kind not in TRANSFORMERS:
        raise UserError(f"the network {kind!r} is unknown; accepted: {', '.join((UNET, *TRANSFORMERS))}")
    return getattr(diffusers, kind)


def reinitialise(network: nn.Module, seed: int) -> None:
    """Draw every parameter anew, in place, as on construction; pruned shapes stay. Raises a UserError where a
    parameter's initialisation is unknown."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, module in network.named_modules():
            redraw(name, module)


def rebuild(config: Mapping[str, Any], tensors: Mapping[str, Tensor], origin: str, kind: str = UNET) -> Any:
    """Return the network of diffusers' class ``kind`` with the stored ``tensors``, from which each layer takes its
    width, and a transformer its number of heads and blocks: ``config`` is that of the unpruned network. ``origin``
    names the file in errors."""
    network = _empty(config, tensors, kind)
    full, whole = network.state_dict(), sites(network)
    _check_shapes(full, tensors, origin)
    for name, tensor in tensors.items():
        path, _, key = name.rpartition(".")
        module = network.get_submodule(path)
        if key in module._buffers:
            module._buffers[key] = tensor.clone()
        else:
            trained = module.get_parameter(key).requires_grad  # Fourier features are not
            module._parameters[key] = nn.Parameter(tensor.clone(), requires_grad=trained)
    sync_layers(network)
    sync_resamplers(network)
    if kind in TRANSFORMERS:
        sync_heads(network)
        check_widths(network, whole, full, origin)
    return network.eval()


def _empty(config: Mapping[str, Any], tensors: Mapping[str, Tensor], kind: str) -> nn.Module:
    """Return a network whose weights do not matter: without any for a U-Net. A transformer also has tables of positions
    that no file has, which must be computed."""
    if kind not in TRANSFORMERS:
        with torch.device("meta"):
            return network_class(kind)(**config)
    return build(stored_config(kind, config, tensors), 0, kind)


def _check_shapes(full: Mapping[str, Tensor], stored: Mapping[str, Tensor], origin: str) -> None:
    if odd := sorted(set(full) ^ set(stored)):
        what = f"{len(odd)} tensors are missing or unknown, such as {odd[0]!r}"
        raise UserError(f"{origin}: not the weights of this architecture; {what}")
    for name, tensor in full.items():
        own = stored[name].shape
        if len(own) != tensor.ndim or any(not 0 < some <= most for some, most in zip(own, tensor.shape, strict=True)):
            what = f"{name!r} has the shape {tuple(own)}, where at most {tuple(tensor.shape)} fits"
            raise UserError(f"{origin}: not the weights of this architecture; {what}")


def sync_resamplers(network: nn.Module) -> None:
    """Update the widths that resampling layers check their inputs against, which pruning does not update."""
    for module in network.modules():
        if isinstance(module, Upsample2D | Downsample2D) and isinstance(module.conv, nn.Conv2d):
            module.channels, module.out_channels = module.conv.in_channels, module.conv.out_channels


def parameter_count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
