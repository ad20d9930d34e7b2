"""How networks are told the time."""

from dataclasses import dataclass

import torch
from torch import Tensor

TIME_STEPS = 1000  # of the noise schedules that networks' embeddings of the time were made for


def in_time_steps(time: Tensor) -> Tensor:
    """Return ``time`` as a network with an embedding of 1,000 time steps expects it: an integer time step as it is, and
    σ of flow matching as 1000 σ."""
    return time * TIME_STEPS if time.is_floating_point() else time


@dataclass(frozen=True)
class Unrounded:
    """A time in float32 for networks that begin with ``timestep.to(hidden_states.dtype)``.

    In bfloat16 that rounds σ to 8 bits before its embedding, which is far finer. This object stays in float32 then.
    """

    time: Tensor

    def to(self, dtype: torch.dtype) -> Tensor:
        return self.time
