"""The random numbers that a network draws itself, as dropout does, from torch's global state."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from diffcredit.seeds import derive_seed


@contextmanager
def own_randomness(network: nn.Module, device: torch.device) -> Generator[Callable[..., None]]:
    """Yields ``reseed(*parts)``, which makes the network's next random numbers follow from ``parts`` alone.

    The caller's random state, on the CPU and on ``device``, is as before afterwards. A network without dropout
    draws nothing: then nothing is seeded or kept.
    """
    if not any(isinstance(module, _DropoutNd) and module.p > 0 for module in network.modules()):
        yield lambda *parts: None
        return
    on_gpu = device.type == "cuda"

    def reseed(*parts: int | str) -> None:
        seed = derive_seed(*parts)
        # torch.manual_seed would seed the other GPUs as well
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)

    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        yield reseed
