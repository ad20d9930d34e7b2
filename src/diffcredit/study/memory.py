"""The memory that a study needs, told before its model is loaded."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from diffcredit.diffusion.fast.eligibility import dtype_of
from diffcredit.diffusion.memory.estimate import Load, Need, Precision, fitting
from diffcredit.diffusion.memory.outlined_work import weight_bytes
from diffcredit.diffusion.memory.outlines import encoders_of, outline_of
from diffcredit.diffusion.pipeline import Pipeline
from diffcredit.diffusion.text_to_image import LoRAFamily
from diffcredit.errors import located

if TYPE_CHECKING:
    from diffcredit.study.study import Study

CGROUP = Path("/sys/fs/cgroup")  # the limits of a container


@dataclass(frozen=True)
class Memory:
    """What each stage of a study's work ``needs`` on its ``device``, in one process, and what is ``available`` there;
    None if that is not known. ``host`` is what passes through the host's memory where the device is a GPU. ``remedies``
    are settings with which training fits, and ``remedied`` what it then needs."""

    device: str
    needs: tuple[Need, ...]
    available: int | None
    host: int = 0
    host_available: int | None = None
    remedies: tuple[str, ...] = ()
    remedied: int = 0

    @property
    def peak(self) -> int:
        return max(need.total for need in self.needs)

    @property
    def too_large(self) -> tuple[Need, ...]:
        """The stages that need more than is available."""
        return tuple(need for need in self.needs if self.available is not None and need.total > self.available)


def study_memory(study: "Study") -> Memory | None:
    """Estimate the memory of ``study``; None for a model of the user's own make."""
    prepared, config, contributions = study.prepared, study.config, study.contributions
    family = prepared.family
    with located(f"{study.file}: model"):
        precision = _precision(family)
    with located(study.file):
        outline = outline_of(family, contributions)
    if outline is None:
        return None
    device = prepared.device
    texts = 1 if outline.prompt is not None else len(set(contributions.captions or ()))
    load = Load(
        outline,
        len(contributions.names),
        texts,
        config.model.train,
        config.sampling,
        eight_bits=precision == "8bit",
        computes_bf16=dtype_of(config.model.train.precision, device) == torch.bfloat16,
    )
    needs, available = load.needs(), available_bytes(device)
    remedies, remedied = (), 0
    if available is not None and load.of_training().total > available:
        remedies, remedied = fitting(load, available, precision)
    host = 0
    if device.type != "cpu":
        encoders = sum(weight_bytes(each) for each in encoders_of(outline))
        host = max(load.frozen, encoders) + load.conditions - load.conditions_on_device
    return Memory(
        str(device), tuple(needs), available, host, available_bytes(torch.device("cpu")), tuple(remedies), remedied
    )


def _precision(family: object) -> Precision | None:
    """Return that of a frozen base; None for a network that is trained whole, or was by a study."""
    frozen = family.frozen if isinstance(family, LoRAFamily) else None
    return frozen.precision if isinstance(frozen, Pipeline) else None


def available_bytes(device: torch.device) -> int | None:
    """Return the memory that this process can still get on ``device``; None where the system does not say."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    found = [each for each in (_free_of_host(), _free_of_container()) if each is not None]
    return min(found, default=None)


def _free_of_host() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


def _free_of_container() -> int | None:
    try:
        limit, used = ((CGROUP / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        return max(0, int(limit) - int(used))
    except (OSError, ValueError):  # no container, or one without a limit
        return None
