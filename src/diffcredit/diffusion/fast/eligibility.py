"""Decide whether a model takes the fast path and how many are trained at once, and warn once why not."""

import os
from importlib.util import find_spec

import torch
import torch.distributed as dist
from torch import Tensor

from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.fast.stacking import CannotStack, stacked
from diffcredit.diffusion.model import Batch, DiffusionModel
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


def trains_fast(model: DiffusionModel, settings: Training, data: Batch | None = None) -> bool:
    """Return whether ``model`` is trained on the fast path, if given on ``data``. If not on a GPU, warn once why."""
    if model.device.type != "cuda":
        return False
    return _is_clear("training", _obstacle(model) or _obstacle_in(settings) or _obstacle_in_data(data))


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
    if find_spec("triton") is None:
        return "Triton is not installed"
    if os.environ.get("TORCH_COMPILE_DISABLE") == "1":
        return "torch.compile is switched off (TORCH_COMPILE_DISABLE)"
    if model.denoiser.ragged:
        return f"{type(model.network).__name__} cuts texts to their lengths, which no compiled function can"
    if not all(weight.is_floating_point() for weight in model.network.parameters()):
        return "the frozen base is in 8 bits"
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


def _obstacle_in_data(data: Batch | None) -> str | None:
    away = [] if data is None else [each for each in (data.conditions or {}).values() if each.device != data.x.device]
    if not away:
        return None
    size = sum(each.nbytes for each in away) / 2**30
    return f"the conditions of {len(away[0])} texts, {size:.1f} GiB, are kept on the CPU"


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
    free -= _copied_bytes(like, dtype_of(settings.precision, like.device))
    return max(1, min(size, int(SHARE * free / training_bytes(like, settings.batch_size))))


def _copied_bytes(like: DiffusersModel, dtype: torch.dtype) -> int:
    """Return the bytes of a fleet's copy of the frozen weights, which it needs where their type is not that of its
    numbers. A base in bf16 is never copied."""
    frozen = [weight for weight in like.network.parameters() if not weight.requires_grad and weight.dtype != dtype]
    return 0 if like.computes is not None else sum(weight.numel() for weight in frozen) * dtype.itemsize


def training_bytes(like: DiffusersModel, batch_size: int) -> float:
    """Estimate the bytes that the training of one model needs beside a frozen base: 22 for each trained weight (in
    float32, with gradient, two moments, average and bf16 copy), and in bf16 the numbers that the backward pass of one
    image needs, times the batch. A frozen layer's inputs are not among these, an adapter's and an attention's are."""
    seen: dict[int, int] = {}
    weights = {weight.untyped_storage().data_ptr() for weight in like.network.parameters()}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if tensor.is_floating_point() and storage.data_ptr() not in weights:
            seen[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
            kept.append(tensor)  # so that no other takes its place
        return tensor

    kept: list[Tensor] = []
    x = torch.zeros(1, *like.shape, device=like.device)
    time = like.objective.times(torch.zeros(1, dtype=torch.long, device=like.device))
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        like.call(x, time, like.guide([0], None).condition)
    trained = sum(weight.numel() for weight in like.network.parameters() if weight.requires_grad)
    return 22 * trained + 2 * sum(seen.values()) * batch_size
