"""Build U-Nets of diffusers, fresh or from stored tensors of pruned shapes."""

from collections.abc import Mapping
from typing import Any

import torch
from diffusers.models.downsampling import Downsample2D
from diffusers.models.unets.unet_2d import UNet2DModel
from diffusers.models.upsampling import Upsample2D
from torch import Tensor, nn

from diffcredit.errors import UserError


def build(config: Mapping[str, Any], seed: int) -> UNet2DModel:
    """Return a freshly initialised network, with the same weights for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return UNet2DModel(**config).eval()


def reinitialise(network: nn.Module, seed: int) -> None:
    """Draw every layer's weights anew, in place, as on construction; pruned shapes stay."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in network.modules():
            if isinstance(module, nn.Conv2d | nn.Linear | nn.GroupNorm):
                module.reset_parameters()


def rebuild(config: Mapping[str, Any], tensors: Mapping[str, Tensor], origin: str) -> UNet2DModel:
    """Return the network of ``config`` with the stored ``tensors``, from which each layer takes its width.

    No config has a pruned network's widths, so they are read from the weights. ``origin`` names the file in errors.
    """
    with torch.device("meta"):
        network = UNet2DModel(**config)
    expected = {name: tensor.ndim for name, tensor in network.state_dict().items()}
    if expected != {name: tensor.ndim for name, tensor in tensors.items()}:
        odd = sorted(set(expected) ^ set(tensors))
        raise UserError(
            f"{origin}: not the weights of this architecture"
            + (f"; {len(odd)} tensors are missing or unknown, such as {odd[0]!r}" if odd else "; tensors of other rank")
        )
    for name, tensor in network.state_dict().items():
        if any(stored > full for stored, full in zip(tensors[name].shape, tensor.shape, strict=True)):
            raise UserError(
                f"{origin}: not the weights of this architecture; {name!r} has the shape "
                f"{tuple(tensors[name].shape)}, where at most {tuple(tensor.shape)} fits"
            )
    for name, module in network.named_modules():
        weight = tensors.get(f"{name}.weight")
        if weight is None:
            continue
        if isinstance(module, nn.Conv2d):
            module.out_channels, module.in_channels = weight.shape[0], weight.shape[1] * module.groups
        elif isinstance(module, nn.Linear):
            module.out_features, module.in_features = weight.shape
        elif isinstance(module, nn.GroupNorm):
            module.num_channels = weight.shape[0]
    for module in network.modules():
        for key, parameter in list(module._parameters.items()):
            if parameter is not None:
                empty = torch.empty(0, device="meta")
                module._parameters[key] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
    _assign(network, tensors)
    sync_resamplers(network)
    return network.eval()


def _assign(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        path, _, key = name.rpartition(".")
        module = network.get_submodule(path)
        trained = module.get_parameter(key).requires_grad  # Fourier features are not
        module._parameters[key] = nn.Parameter(tensor.clone(), requires_grad=trained)


def sync_resamplers(network: nn.Module) -> None:
    """Update the widths that resampling layers check their inputs against, which pruning does not update."""
    for module in network.modules():
        if isinstance(module, Upsample2D | Downsample2D):
            convolution = module.conv
            if isinstance(convolution, nn.Conv2d):
                module.channels, module.out_channels = convolution.in_channels, convolution.out_channels


def parameter_count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
