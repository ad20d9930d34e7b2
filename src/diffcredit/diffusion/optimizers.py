"""The optimizers, the learning rate and the weight averaging of a training."""

import importlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from diffcredit.diffusion.settings import Training
from diffcredit.errors import UserError


def make_optimizer(settings: Training, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    rate, decay = settings.learning_rate, settings.weight_decay
    match settings.optimizer:
        case "adam":
            return torch.optim.Adam(parameters, lr=rate, fused=True)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)
        case "sgd":
            return torch.optim.SGD(parameters, lr=rate)
        case "adam8bit":
            return _bitsandbytes(settings).Adam8bit(parameters, lr=rate)
        case "adamw8bit":
            return _bitsandbytes(settings).AdamW8bit(parameters, lr=rate, weight_decay=decay)


def check_optimizer(settings: Training) -> None:
    """Raise a UserError if the optimizer's package is not installed."""
    if settings.optimizer.endswith("8bit"):
        _bitsandbytes(settings)


def _bitsandbytes(settings: Training) -> Any:
    try:
        return importlib.import_module("bitsandbytes.optim")
    except ImportError as error:
        raise UserError(
            f"model.train.optimizer: {settings.optimizer!r} needs the package bitsandbytes ({error}); "
            'pip install "diffcredit[8bit]"'
        ) from None


def averaged_share(settings: Training, done: int) -> float:
    """Return the share of the weights after ``done`` steps in their running average; 0 before averaging begins."""
    if settings.ema is not None:
        return 1 - min(settings.ema, (1 + done) / (10 + done))
    if settings.average_tail is not None:
        first = settings.steps - max(1, round(settings.average_tail * settings.steps))
        return 1 / (done - first) if done > first else 0.0  # the running mean of the tail
    return 0.0


def learning_rate(settings: Training, step: int) -> float:
    """Return the learning rate η_k at step k = 0, 1, …, K − 1, with w warm-up steps and j = k − w:

    η (k + 1) / w for k < w; then η (constant), η (1 + cos(π j / (K − w))) / 2 (cosine) or
    η (1 − j / (K − w)) (linear).
    """
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    done, total = step - settings.warmup_steps, settings.steps - settings.warmup_steps
    match settings.schedule:
        case "constant":
            return settings.learning_rate
        case "cosine":
            return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * done / total))
        case "linear":
            return settings.learning_rate * (1 - done / total)
