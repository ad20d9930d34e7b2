"""The least time that an evaluation can take on a card: its operations and its bytes over what the card was measured
to do."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from diffcredit.diffusion.ddpm import DDPM

OPERATIONS = 790e12  # bf16 a second, of a large matrix product on an H200
BYTES = 4.3e12  # a second, read and written by a large copy


def operations(model: DDPM) -> float:
    """Of one forward pass of one image: a multiplication and an addition are two."""
    x = torch.zeros(1, *model.shape, device=model.device)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.network(x, torch.zeros(1, dtype=torch.long, device=model.device))
    return float(counter.get_total_flops())


def activations(model: DDPM) -> float:
    """Bytes in bf16 that the layers of one image's forward pass read and write, if what lies between two
    convolutions, products or attentions is done while these load and store: each reads its input and writes its
    output once."""
    total = 0

    def count(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        nonlocal total
        total += 2 * (inputs[0].numel() + output.numel())

    hooks = [
        module.register_forward_hook(count)
        for module in model.network.modules()
        if isinstance(module, torch.nn.Conv2d | torch.nn.Linear)
    ]
    x = torch.zeros(1, *model.shape, device=model.device)
    with torch.no_grad():
        model.network(x, torch.zeros(1, dtype=torch.long, device=model.device))
    for hook in hooks:
        hook.remove()
    return float(total)


def training_floor(model: DDPM, batch_size: int) -> float:
    """Seconds of one step: forward, and twice that backward; or the bytes of the activations three times, and of the
    weights in float32 with Adam's moments (28 bytes a weight)."""
    parameters = sum(weight.numel() for weight in model.network.parameters())
    by_operations = 3 * batch_size * operations(model) / OPERATIONS
    by_bytes = (3 * batch_size * activations(model) + 28 * parameters) / BYTES
    return max(by_operations, by_bytes)


def sampling_floor(model: DDPM) -> float:
    """Seconds of one step of one image, in large batches."""
    return max(operations(model) / OPERATIONS, activations(model) / BYTES)
