"""Batches in pieces that the device's memory holds."""

import dataclasses
import gc
import warnings
from collections.abc import Callable
from typing import TypeVar

import torch

from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.diffusion.session import current_session
from diffcredit.diffusion.settings import Training
from diffcredit.errors import DiffcreditError, DiffcreditWarning

T = TypeVar("T")


class OutOfMemoryError(DiffcreditError):
    """Not even a single sample fits, perhaps beside what another process holds."""


def micro_batch_in_use(model: DiffusionModel, settings: Training) -> int:
    """The most samples of a step that go through the network at once: all, ``settings.micro_batch`` of them, or
    what was found to fit into the memory since this process started."""
    asked = min(settings.micro_batch or settings.batch_size, settings.batch_size)
    return min(asked, current_session().micro_batches.get(_key(model, settings), asked))


def smallest_micro_batch() -> int | None:
    """The smallest that was found to fit since this process started; None where memory never ran out. Sums come out
    another way in other pieces, so it belongs to the numerics of what was computed."""
    return min(current_session().micro_batches.values(), default=None)


def with_fitting_micro_batch(attempt: Callable[[int], T], samples: int, model: DiffusionModel, settings: Training) -> T:
    """``attempt(size)`` with the micro-batch in use, or half of it as often as the memory runs out.

    ``samples`` are there to be cut up. The size that fits is remembered.
    """
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
    """``work`` on the places 0..total−1, at most ``batch_size`` at once, or fewer where the memory runs out.

    For work whose result at a place does not depend on the others, such as sampling; results come in order.
    """
    results: list[T] = []
    start, size = 0, batch_size
    while start < total:

        def attempt(count: int, start: int = start) -> T:
            return work(range(start, start + count))

        piece = min(size, total - start)
        result, fits = _halving(attempt, piece, "a smaller model needs less")
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


def part(batch: Batch, places: range) -> Batch:
    """The samples of ``batch`` at the contiguous ``places``."""
    cut = slice(places.start, places.stop)
    return dataclasses.replace(
        batch,
        x=batch.x[cut],
        flipped=batch.flipped[cut],
        rows=batch.rows[cut],
        condition_of=None if batch.condition_of is None else batch.condition_of[cut],
    )


def _halving(attempt: Callable[[int], T], size: int, remedy: str) -> tuple[T, int]:
    """The result of ``attempt(size)`` with the first of size, ⌊size/2⌋, … that the memory holds, and that size."""
    while True:
        try:
            return attempt(size), size
        except torch.OutOfMemoryError:
            pass  # while the exception lives, so do the tensors of the failed attempt: they are freed below
        if size == 1:
            raise OutOfMemoryError(f"out of memory with a single sample at once; {remedy}")
        size //= 2
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def _key(model: DiffusionModel, settings: Training) -> tuple[object, ...]:
    """What decides how many samples fit."""
    weights = sum(parameter.numel() for parameter in model.network.parameters())
    return (str(model.device), weights, settings.batch_size, settings.precision, settings.gradient_checkpointing)
