"""K networks of one architecture as one, with their images one model after another in one batch.

A tensor (b, …) of one network becomes (K·b, …). Layers with trained weights apply each model's own weights, which have
a leading dimension K, to its images. All other layers, frozen ones included, work on each image separately and stay as
they are. So diffusers' own code runs the fleet, and pruned networks and adapters work too.
"""

import copy

from diffusers.models.upsampling import Upsample2D
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from diffcredit.diffusion.dropout import counted_dropouts
from diffcredit.diffusion.fast.layers import CannotStack, Doubled, StackedConv, StackedLinear, simple
from diffcredit.diffusion.fast.normalising import Norm, fuse_norms


def stacked(network: nn.Module, count: int, *, cuda: bool) -> nn.Module:
    """Return a copy of ``network`` for ``count`` models. Each call is given their trained weights (K, …)
    (:func:`torch.func.functional_call`); those of a single model without the leading dimension."""
    # in eval mode also for training: dropout is active when it has keys, and in train mode diffusers copies tensors
    fleet = copy.deepcopy(network).eval()
    for name, dropout in counted_dropouts(fleet).items():
        fleet.set_submodule(name, dropout)
    for name, module in fleet.named_modules():
        if isinstance(module, _DropoutNd) and module.p > 0:
            raise CannotStack(f"{name} is a {type(module).__name__} of {module.p:g}")
    for name, module in list(fleet.named_modules()):
        if type(module) is nn.GroupNorm and module.affine:
            fleet.set_submodule(name, Norm(module, cuda=cuda))
        elif _doubles(module):
            fleet.set_submodule(name, Doubled(module.conv))
        elif count == 1 and cuda and type(module) is nn.Conv2d and _is_odd(module):
            fleet.set_submodule(name, StackedConv(module, cuda=cuda))
    if count > 1:
        _stack_trained_layers(fleet, cuda=cuda)
    fuse_norms(fleet)
    return fleet


def _stack_trained_layers(fleet: nn.Module, *, cuda: bool) -> None:
    """Replace trained layers by those of many models, in place."""
    for name, module in list(fleet.named_modules()):
        own = [key for key, weight in module.named_parameters(recurse=False) if weight.requires_grad]
        if type(module) is nn.Conv2d and own:
            fleet.set_submodule(name, StackedConv(module, cuda=cuda))
        elif type(module) is nn.Linear and own:
            fleet.set_submodule(name, StackedLinear(module, cuda=cuda))
        elif own and not isinstance(module, Norm):
            raise CannotStack(f"{name} is a {type(module).__name__}")


def _is_odd(layer: nn.Conv2d) -> bool:
    """Return whether it is a first or last layer, with too few channels for cuDNN's fast kernels."""
    threefold = layer.kernel_size == (3, 3) and layer.padding == (1, 1)
    return threefold and simple(layer) and min(layer.in_channels, layer.out_channels) < 8


def _doubles(module: nn.Module) -> bool:
    return (
        type(module) is Upsample2D
        and module.use_conv
        and not module.use_conv_transpose
        and module.interpolate
        and module.norm is None
        and isinstance(getattr(module, "conv", None), nn.Conv2d)
    )
