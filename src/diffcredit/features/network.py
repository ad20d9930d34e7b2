"""Extractors that are torch networks."""

from typing import TYPE_CHECKING, Any

from diffcredit.features.base import Extractor, Features, Images, Precision

if TYPE_CHECKING:
    from torch import Tensor


class NetworkExtractor(Extractor):
    """An extractor that is a torch network. :meth:`load` sets ``_device``, and ``precision`` is one of its fields."""

    precision: Precision
    cpu_batch = 4  # larger batches take half as long again on a CPU, because of memory traffic
    _device: str

    def identity(self) -> dict[str, Any]:
        return {**self._described(), **({} if self.precision == "float32" else {"precision": self.precision})}

    def extract(self, images: Images) -> Features:
        from diffcredit.features.torch_features import as_array, inference

        with inference(self.precision, self._device):
            vectors, logits = self._forward(images)
        return Features(as_array(vectors), None if logits is None else as_array(logits))

    def _described(self) -> dict[str, Any]:
        """Return the identity but for the precision."""
        raise NotImplementedError

    def _forward(self, images: Images) -> "tuple[Tensor, Tensor | None]":
        """Return vectors (m, d) and logits (m, k), or None, of images."""
        raise NotImplementedError
