"""BLIP (Li et al., 2022), trained to answer questions about images."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from diffcredit.features.base import Images, Precision
from diffcredit.features.network import NetworkExtractor

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class BLIPVQA(NetworkExtractor):
    """The pooled output of BLIP-VQA's image encoder: its class token after the last layer, normalised twice.

    The model's own image processor resizes images. ``model`` is a folder or a hub id of a BLIP model for question
    answering of transformers.
    """

    model: str = "Salesforce/blip-vqa-base"
    batch_size: Annotated[int, Ge(1)] = 16
    precision: Precision = "float32"

    label = "BLIP-VQA"

    @property
    def dimensions(self) -> int:
        return self._network.config.hidden_size

    def load(self, device: str) -> None:
        from diffcredit.features.torch_features import Checkpoint, transformers_package

        kind = transformers_package("blip_vqa").BlipForQuestionAnswering
        checkpoint = Checkpoint.find(self.model, "blip")
        self._network = checkpoint.load(kind)[0].vision_model.to(device)
        self._processor = checkpoint.image_processor()
        self._device = device
        self._identity: dict[str, Any] = {
            **checkpoint.identity(),
            "resize": self._processor.described(),
            "layer": "pooled output of the image encoder",
        }

    def _described(self) -> dict[str, Any]:
        return self._identity

    def _forward(self, images: Images) -> "tuple[Tensor, None]":
        return self._network(self._processor(images, self._device)).pooler_output, None
