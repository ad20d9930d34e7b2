"""Micro-batches: pieces of a batch that fit into the device's memory."""

import gc
import warnings
from collections.abc import Callable
from typing import TypeVar

import torch

from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.session import current_session
from diffcredit.diffusion.settings import Training
from diffcredit.errors import DiffcreditError, DiffcreditWarning

T = TypeVar("T")


class OutOfMemoryError(DiffcreditError):
    """Not even a single sample fits into memory; another process may occupy it."""


def micro_batch_in_use(model: DiffusionModel, settings: Training) -> int:
    """Return the number of samples that go through the network at once: the batch, ``settings.micro_batch``, or what
    was found to fit into memory in this process."""
    asked = min(settings.micro_batch or settings.batch_size, settings.batch_size)
    return min(asked, current_session().micro_batches.get(_key(model, settings), asked))


def smallest_micro_batch() -> int | None:
    """Return the smallest micro-batch found to fit since this process started; None if memory never ran out. It belongs
    to the numerics of a result, since sums are rounded differently in other pieces."""
    return min(current_session().micro_batches.values(), default=None)


def with_fitting_micro_batch(attempt: Callable[[int], T], samples: int, model: DiffusionModel, settings: Training) -> T:
    """Return ``attempt(size)`` on ``samples``, with the micro-batch in use, or half of it each time memory runs out.
    The size that fits is remembered."""
    size = min(samples, micro_batch_in_use(model, settings))
    remedy = "a smaller model, gradient_checkpointing: true or precision: bf16 need less"
    result, fits = _halving(attempt, size, remedy)
    if fits < size:
        key, known = _key(model, settings), current_session().micro_batches
        first = key not in known
        known[key] = fits
        if first:
            warnings.warn(
                f"out of memory with {size} samples at once; steps of {settings.batch_size} are trained in pieces "
                f"of {fits}, which changes rounding only (micro_batch: {fits} does so from the start)",
                DiffcreditWarning,
                stacklevel=2,
            )
    return result


def in_smaller_batches(work: Callable[[range], T], total: int, batch_size: int) -> list[T]:
    """Return the results of ``work`` on the indices 0..total−1 in order, at most ``batch_size`` at once, fewer if
    memory runs out. The work at an index must not depend on the others."""
    results: list[T] = []
    start, size = 0, batch_size
    while start < total:
        piece = min(size, total - start)
        result, fits = _halving(
            lambda count, start=start: work(range(start, start + count)), piece, "a smaller model needs less"
        )
        if fits < piece:
            size = fits
            warnings.warn(
                f"out of memory with {piece} images at once; going on with {fits}, which changes rounding only "
                f"(batch_size: {fits} does so from the start)",
                DiffcreditWarning,
                stacklevel=2,
            )
        results.append(result)
        start += fits
    return results


def _halving(attempt: Callable[[int], T], size: int, remedy: str) -> tuple[T, int]:
    """Return ``attempt(size)`` with the first of size, ⌊size/2⌋, … that fits into memory, and that size."""
    while True:
        try:
            return attempt(size), size
        except torch.OutOfMemoryError:
            pass  # the exception keeps the tensors of the failed attempt alive: they are freed below
        if size == 1:
            raise OutOfMemoryError(f"out of memory with a single sample at once; {remedy}")
        size //= 2
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def _key(model: DiffusionModel, settings: Training) -> tuple[object, ...]:
    """Return what decides how many samples fit."""
    weights = sum(parameter.numel() for parameter in model.network.parameters())
    return (str(model.device), weights, settings.batch_size, settings.precision, settings.gradient_checkpointing)
