"""Extractors that are torch networks, and how inference runs in them."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge
from numpy.typing import NDArray
from torch import Tensor

from diffcredit.features.base import Extractor, Features, Images

Precision = Literal["float32", "bf16"]
"""Precision of a network's products. bf16 is several times faster on a GPU and rounds features to 2 or 3 digits."""


@contextmanager
def inference(precision: Precision = "float32", device: str = "cpu") -> Generator[None]:
    """Run inference deterministically, in float32 (not TF32, as CUDA convolutions would) or with products in bf16."""
    cudnn = torch.backends.cudnn
    flags = cudnn.flags(enabled=cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=False)
    rounding = torch.autocast(torch.device(device).type, torch.bfloat16, enabled=precision == "bf16")
    with torch.inference_mode(), flags, rounding:
        yield


def as_array(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.float().cpu().numpy()


@dataclass(kw_only=True)
class NetworkExtractor(Extractor):
    """An extractor that is a torch network, which ``load`` hands to :meth:`_use`."""

    batch_size: Annotated[int, Ge(1)] = 32
    precision: Precision = "float32"

    cpu_batch = 4  # larger batches take half as long again on a CPU, because of memory traffic

    def _use(self, network: Any, device: str, **described: Any) -> None:
        """Keep the network, which is on ``device``, and its identity but for the precision."""
        self._network, self._device, self._described = network, device, described

    def identity(self) -> dict[str, Any]:
        return {**self._described, **({} if self.precision == "float32" else {"precision": self.precision})}

    def extract(self, images: Images) -> Features:
        with inference(self.precision, self._device):
            vectors, logits = self._forward(images)
        return Features(as_array(vectors), None if logits is None else as_array(logits))

    def _forward(self, images: Images) -> tuple[Tensor, Tensor | None]:
        """Return vectors (m, d) and logits (m, k), or None, of images."""
        raise NotImplementedError
