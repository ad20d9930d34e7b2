"""The state that a process keeps between trainings and samplings.

Compiled functions, recorded CUDA graphs and their memory are expensive to make and serve every coalition. All of them
are in the process's one :class:`Session`. ``train``, ``generate`` and the other entry points ask
:func:`current_session` for it, and pass it on: the protocols of models and retrainings have no place for it.
"""

import gc
import threading
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import DiffcreditWarning

if TYPE_CHECKING:
    from diffcredit.diffusion.fast.fleet import Fleet
    from diffcredit.diffusion.fast.functional import Functions
    from diffcredit.diffusion.fast.sampling import FastSampler
    from diffcredit.diffusion.model import Batch


@dataclass(eq=False)
class Session:
    """All that was compiled and recorded, and what was learnt about this machine. At most one fleet and one sampler are
    kept: coalitions differ in weights and images alone, and two of either may not fit into memory."""

    functions: dict[str, "Functions"] = field(default_factory=dict)
    """Compiled functions by architecture, device, type of numbers and number of models."""
    fleet: "tuple[list[object], Batch, Fleet] | None" = None
    """The key, the data and the fleet used last."""
    sampler: "tuple[list[object], FastSampler] | None" = None
    """The key and the sampler used last."""
    expected_sampling: Sampling | None = None
    """How models trained from now on will be sampled: a sampler is prepared while the first train; then None."""
    preparation: threading.Thread | None = None
    """The thread that prepares the expected sampler."""
    micro_batches: dict[tuple[object, ...], int] = field(default_factory=dict)
    """The micro-batches found to fit where memory ran out."""
    failures: set[str] = field(default_factory=set)
    """Why the fast path failed, if it did; it is then not tried again."""
    warned: set[str] = field(default_factory=set)
    """The obstacles to the fast path that a warning has named."""
    recording: threading.Lock = field(default_factory=threading.Lock)
    """Held while something is compiled and recorded: neither compilers nor cuDNN's settings know threads."""

    def release_fleet(self) -> None:
        """Give the last fleet's memory back."""
        self.fleet = None
        gc.collect()  # a fleet and what it has recorded hold each other
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def warn_once(self, what: str, obstacle: str) -> None:
        """Warn that ``what`` does not take the fast path, once for each ``obstacle``."""
        if obstacle not in self.warned:
            self.warned.add(obstacle)
            warnings.warn(
                f"{what} goes step by step on this GPU, at a fraction of its speed: {obstacle}",
                DiffcreditWarning,
                stacklevel=4,
            )


_session = Session()


def current_session() -> Session:
    return _session
