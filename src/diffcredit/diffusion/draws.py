"""The inputs of a training step: images, mirrorings, time steps, noises and which conditions are left out, which follow
from (seed, step) alone."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffcredit.diffusion.counter_rng import normals, words
from diffcredit.diffusion.model import Batch
from diffcredit.diffusion.settings import Training
from diffcredit.util.seeds import derive_seed


@dataclass(frozen=True, eq=False)
class Plan:
    """The inputs of a training's steps, on the CPU: the indices of each step's images in the data, whether they are
    mirrored, and their time steps, each (steps, b); the keys of its noises, (steps,), 64 bits as int64; and whether
    their conditions are left out, (steps, b), for models that do so."""

    places: Tensor
    flip: Tensor
    t: Tensor
    keys: Tensor
    dropped: Tensor | None = None


def plan(
    rows: Tensor, settings: Training, seed: int, time_steps: int, steps: range | None = None, *, dropout: float = 0.0
) -> Plan:
    """Plan all steps, or ``steps``, of a training on m images, whose indices among all contributions are ``rows`` (m,).
    Images come in epochs of random order; a batch may extend into the next epochs. The share ``dropout`` of conditions
    is left out."""
    steps = range(settings.steps) if steps is None else steps
    size, total = settings.batch_size, len(rows)
    first, offset = divmod(steps.start * size, total)
    last = (steps.stop * size - 1) // total
    order = torch.cat([_order(rows, seed, epoch) for epoch in range(first, last + 1)])
    keys = _keys(seed, "step", steps)
    t, flip = _times_and_flips(keys, size, time_steps)
    return Plan(
        places=order[offset : offset + len(steps) * size].reshape(len(steps), size),
        flip=torch.from_numpy(flip if settings.flip else np.zeros_like(flip)),
        t=torch.from_numpy(t),
        keys=torch.from_numpy(_keys(seed, "noise", steps).view(np.int64)),
        dropped=torch.from_numpy(_dropped(keys, size, dropout)) if dropout else None,
    )


def draw(
    data: Batch, step: int, settings: Training, seed: int, time_steps: int, *, dropout: float = 0.0
) -> tuple[Batch, Tensor, Tensor]:
    """Return the batch, the time steps (b,) and the noises (b, c, h, w) of step ``step``."""
    seen = plan(data.rows, settings, seed, time_steps, range(step, step + 1), dropout=dropout)
    shape = (settings.batch_size, *data.x.shape[1:])
    noise = normals(int(seen.keys[0]), math.prod(shape)).reshape(shape)
    dropped = None if seen.dropped is None else seen.dropped[0]
    batch = data.select(seen.places[0], seen.flip[0] if settings.flip else None, dropped)
    # copies that do not block let the host prepare the next step while the device works on this one
    return batch, seen.t[0].to(data.x.device, non_blocking=True), noise.to(data.x, non_blocking=True)


def noise_key(seed: int, step: int) -> int:
    """Return the key of a step's noises, 64 bits as a signed integer."""
    return int(_keys(seed, "noise", range(step, step + 1)).view(np.int64)[0])


def _keys(seed: int, what: str, steps: range) -> NDArray[np.uint64]:
    return words(derive_seed(seed, what), np.arange(steps.start, steps.stop, dtype=np.uint64))


def _times_and_flips(
    keys: NDArray[np.uint64], size: int, time_steps: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the time steps (s, size) and mirrorings (s, size) of the steps with ``keys`` (s,). Time steps are uniform
    on 0..T−1, one from each of ``size`` equal strata in random order: the loss varies more over time steps than over
    images, so covering them evenly makes the gradient less noisy at no cost."""
    order, within, flips = np.split(words(keys[:, None], np.arange(3 * size, dtype=np.uint64)), 3, axis=1)
    strata = order.argsort(axis=1, kind="stable") + (within >> np.uint64(11)) * 2.0**-53
    t = (strata * (time_steps / size)).astype(np.int64)
    return np.minimum(t, time_steps - 1), flips >> np.uint64(63) == 1


def _dropped(keys: NDArray[np.uint64], size: int, share: float) -> NDArray[np.bool_]:
    """Return whether each sample's condition is left out, (s, size): the words after those of times and flips."""
    places = np.arange(3 * size, 4 * size, dtype=np.uint64)
    return (words(keys[:, None], places) >> np.uint64(11)) * 2.0**-53 < share


def _order(rows: Tensor, seed: int, epoch: int) -> Tensor:
    """Return the epoch's order of the images ``rows`` (m,): one random order of all images, restricted to these."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "epoch", epoch))
    keys = torch.rand(int(rows.max()) + 1, generator=generator, dtype=torch.float64)
    return keys[rows].argsort()
