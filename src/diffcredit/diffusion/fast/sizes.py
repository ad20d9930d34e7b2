"""How many models a fleet has best."""

from diffcredit.diffusion.fast.eligibility import trains_fast
from diffcredit.diffusion.fast.stacking import CannotStack, stacked
from diffcredit.diffusion.protocol import DiffusionModel
from diffcredit.diffusion.settings import Training

# Below so many trained weights, so many models: one alone leaves such a GPU idle most of the time (benchmarks/gpu).
SIZES = ((2_500_000, 16), (8_000_000, 8))


def fleet_size(like: DiffusionModel, settings: Training) -> int:
    """How many models as ``like`` are best trained at once as ``settings`` say; 1 without a GPU."""
    if not trains_fast(like, settings):
        return 1
    trained = sum(weight.numel() for weight in like.network.parameters() if weight.requires_grad)
    size = next((size for most, size in SIZES if trained < most), 1)
    if size > 1:
        try:
            stacked(like.network, size, cuda=False)
        except CannotStack:
            return 1
    return size
