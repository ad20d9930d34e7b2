"""Decide whether a model takes the fast path and how many are trained at once, and warn once why not."""

import os
from importlib.util import find_spec

import torch
import torch.distributed as dist
from torch import Tensor, nn

from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.eight_bit import Linear8bit
from diffcredit.diffusion.fast.stacking import CannotStack, stacked
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.session import Session, current_session
from diffcredit.diffusion.settings import Training

OPTIMIZERS = ("adam", "adamw", "sgd")
# (trained weights, models): below so many weights a fleet has so many models, as measured in benchmarks/gpu. A larger
# model fills a GPU by itself.
SIZES = ((2_500_000, 16), (8_000_000, 8))
SHARE = 0.7  # of the free memory


def dtype_of(precision: str, device: torch.device) -> torch.dtype:
    """Return the dtype that a network computes with: ``auto`` is bfloat16 on a GPU that supports it."""
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported(False) else torch.float32
    return torch.bfloat16 if precision == "bf16" else torch.float32


def trains_fast(model: DiffusionModel, settings: Training) -> bool:
    """Return whether ``model`` is trained on the fast path. If not on a GPU, warn once why."""
    return model.device.type == "cuda" and _is_clear("training", _obstacle(model) or _obstacle_in(settings))


def samples_fast(model: DiffusionModel | DiffusersModel) -> bool:
    """Return whether ``model`` is sampled on the fast path. If not on a GPU, warn once why."""
    return model.device.type == "cuda" and _is_clear("sampling", _obstacle(model))


def give_up(session: Session, what: str, error: Exception) -> None:
    """Warn that the fast path of ``what`` failed, and why. Unless the network is the reason, it is not tried again in
    this session."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if not isinstance(error, CannotStack):
        session.failures.add(reason)
    session.warn_once(what, reason)


def _obstacle(model: DiffusionModel | DiffusersModel) -> str | None:
    if not isinstance(model, DiffusersModel):
        return f"{type(model).__name__} is no DiffusersModel"
    if any(isinstance(module, Linear8bit) for module in model.network.modules()):
        return "base: 8bit"
    if find_spec("triton") is None:
        return "Triton is not installed"
    if os.environ.get("TORCH_COMPILE_DISABLE") == "1":
        return "torch.compile is switched off (TORCH_COMPILE_DISABLE)"
    return next(iter(current_session().failures), None)


def _obstacle_in(settings: Training) -> str | None:
    if settings.optimizer not in OPTIMIZERS:
        return f"optimizer: {settings.optimizer}"
    if settings.micro_batch is not None and settings.micro_batch < settings.batch_size:
        return f"micro_batch: {settings.micro_batch}"
    if settings.gradient_checkpointing:
        return "gradient_checkpointing: true"
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return "several processes train together"
    return None


def _is_clear(what: str, obstacle: str | None) -> bool:
    if obstacle is not None:
        current_session().warn_once(what, obstacle)
    return obstacle is None


def fleet_size(like: DiffusionModel, settings: Training) -> int:
    """Return how many models like ``like`` are best trained at once with ``settings``; 1 without a GPU."""
    if not (trains_fast(like, settings) and isinstance(like, DiffusersModel)):
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
    """Estimate the bytes that the training of one model needs: 22 for each trained weight (in float32, with gradient,
    two moments, average and bf16 copy), and the inputs and outputs of convolutions and linear layers in bf16."""
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
