"""The best number of models in a fleet."""

import torch
from torch import Tensor, nn

from diffcredit.diffusion.fast.eligibility import trains_fast
from diffcredit.diffusion.fast.stacking import CannotStack, stacked
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.unet import UNetModel

# (trained weights, models): below so many weights a fleet has so many models, as measured in benchmarks/gpu. A larger
# model fills a GPU by itself.
SIZES = ((2_500_000, 16), (8_000_000, 8))
SHARE = 0.7  # of the free memory


def fleet_size(like: DiffusionModel, settings: Training) -> int:
    """Return how many models like ``like`` are best trained at once with ``settings``; 1 without a GPU."""
    if not (trains_fast(like, settings) and isinstance(like, UNetModel)):
        return 1
    trained = sum(weight.numel() for weight in like.network.parameters() if weight.requires_grad)
    size = next((size for most, size in SIZES if trained < most), 1)
    try:
        stacked(like.network, size, cuda=False)
    except CannotStack:
        return 1
    free, _ = torch.cuda.mem_get_info(like.device)
    return max(1, min(size, int(SHARE * free / training_bytes(like, settings.batch_size))))


def training_bytes(like: DiffusionModel, batch_size: int) -> float:
    """Estimate the bytes that the training of one model needs: 22 for each trained weight (in float32, with its
    gradient, two moments, average and bf16 copy), and the inputs and outputs of convolutions and linear layers in
    bf16."""
    seen = 0

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal seen
        seen += inputs[0].numel() + output.numel()

    layers = [layer for layer in like.network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    inputs = {name: value.to(like.device) for name, value in like.example().items()}  # of one image
    try:
        with torch.no_grad():
            like.network(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    trained = sum(weight.numel() for weight in like.network.parameters() if weight.requires_grad)
    return 22 * trained + 2 * seen * batch_size
