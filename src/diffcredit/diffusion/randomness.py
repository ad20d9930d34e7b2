"""The random numbers that a network uses itself, for dropout."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from diffcredit.diffusion.dropping import counting
from diffcredit.util.seeds import derive_seed


@contextmanager
def own_randomness(network: nn.Module, device: torch.device) -> Generator[Callable[[int, int], None]]:
    """Yields ``reseed(key, place)``, which makes what the network drops next follow from a step's ``key``, 64 bits as a
    signed integer, and from the samples' places in its batch, of which it is given those from ``place`` on.

    Plain dropouts count; other kinds draw from torch's global state, which is as before afterwards, on the CPU and on
    ``device``. A network without dropout draws nothing: then nothing is seeded or kept.
    """
    stand_ins = counting(network)
    originals = {name: network.get_submodule(name) for name in stand_ins}
    drawing = (module for module in network.modules() if isinstance(module, _DropoutNd) and module.p > 0)
    others = any(module not in originals.values() for module in drawing)
    on_gpu = device.type == "cuda"

    def reseed(key: int, place: int) -> None:
        for dropout in stand_ins.values():
            dropout.keys, dropout.first = torch.tensor([key], device=device), place
        if not others:
            return
        seed = derive_seed("network", key, place)
        # torch.manual_seed would seed the other GPUs as well
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)

    for name, stand_in in stand_ins.items():
        network.set_submodule(name, stand_in)
    try:
        with torch.random.fork_rng(devices=[device] if on_gpu else [], enabled=others):
            yield reseed
    finally:
        for name, original in originals.items():
            network.set_submodule(name, original)
