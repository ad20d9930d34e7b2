"""Copies of networks that share what is never trained: a coalition's model costs the memory of its adapter alone."""

import copy
from typing import TypeVar

from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def copy_sharing_frozen(network: Network, *, buffers: bool = False) -> Network:
    """Return a copy of ``network`` with the same frozen parameters and, with ``buffers``, the same buffers: tables of
    positions, which can be as large as a layer. Buffers that training changes must not be shared."""
    frozen = [each for each in network.parameters() if not each.requires_grad]
    shared = [*frozen, *(network.buffers() if buffers else ())]
    return copy.deepcopy(network, {id(each): each for each in shared})


def share_buffers(network: nn.Module, source: nn.Module) -> None:
    """Give ``network`` the buffers of ``source`` by name. Moving a network to another device moves its parameters in
    place, for all that share them, but replaces its buffers."""
    own = dict(network.named_modules())
    for name, buffer in source.named_buffers():
        path, _, key = name.rpartition(".")
        if path in own and key in own[path]._buffers:
            own[path]._buffers[key] = buffer
