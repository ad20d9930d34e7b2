"""BLIP (Li et al., 2022), trained to answer questions about images."""

from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge

from diffcredit.features.base import CPU_BATCH, Extractor, Features, Images, Precision


@dataclass
class BLIPVQA(Extractor):
    """The pooled output of the image encoder of BLIP-VQA: its class token after the last layer, normalised twice as
    transformers does. Images are resized as the model's own image processor does.

    ``model`` is a folder or a hub id of a BLIP model for question answering of transformers.
    """

    model: str = "Salesforce/blip-vqa-base"
    batch_size: Annotated[int, Ge(1)] = 16
    precision: Precision = "float32"

    label = "BLIP-VQA"
    cpu_batch = CPU_BATCH

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
        self._identity = {
            **checkpoint.identity(),
            "resize": self._processor.described(),
            "layer": "pooled output of the image encoder",
        }

    def identity(self) -> dict[str, Any]:
        from diffcredit.features.torch_features import noted

        return {**self._identity, **noted(self.precision)}

    def extract(self, images: Images) -> Features:
        from diffcredit.features.torch_features import as_array, inference

        with inference(self.precision, self._device):
            return Features(as_array(self._network(self._processor(images, self._device)).pooler_output))
