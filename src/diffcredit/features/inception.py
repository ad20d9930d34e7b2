"""Inception-v3, the network that FID, KID and the Inception Score were defined with."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge

from diffcredit.errors import UserError
from diffcredit.features.base import Images, Precision
from diffcredit.features.network import NetworkExtractor
from diffcredit.features.pillow import resized
from diffcredit.features.resizing import tensorflow_bilinear
from diffcredit.features.weights import PublishedWeights, file_hash, load_state, read_state

if TYPE_CHECKING:
    from torch import Tensor

PUBLISHED = {
    "fid": PublishedWeights(
        "https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/pt_inception-2015-12-05-6726825d.pth",
        "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2",
        "Apache-2.0",
    ),
    "torchvision": PublishedWeights(
        "https://download.pytorch.org/models/inception_v3_google-0cc3c7bd.pth", "0cc3c7bd", "BSD-3-Clause"
    ),
}
KEY = "features.weights"
SIZE = 299  # pixels a side
AUXILIARY = "AuxLogits."  # torchvision's second classifier, which only training needs


@dataclass
class InceptionV3(NetworkExtractor):
    """The 2048 numbers of the last pooling, and logits.

    ``fid`` is the network of the original FID and Inception Score (TensorFlow, December 2015) with its resizing, as
    torch-fidelity computes it; use it to compare with published numbers. Its logits omit the bias, as that Inception
    Score does. ``torchvision`` is torchvision's ImageNet classifier, on whole images resized to 299 pixels a side (its
    own preset enlarges them to 342 and crops the margins).

    ``weights`` is a file to use in place of the published one; ``published: false`` says that its weights are others.
    """

    variant: Literal["fid", "torchvision"] = "fid"
    weights: str | None = None
    published: bool = True
    batch_size: Annotated[int, Ge(1)] = 64
    precision: Precision = "float32"

    label = "Inception-v3"
    dimensions = 2048

    def __post_init__(self) -> None:
        if self.weights is None and not self.published:
            raise UserError(f"features.published: false, and no file of weights is named; name one with {KEY}")

    @property
    def classes(self) -> int:
        return 1008 if self.variant == "fid" else 1000

    def load(self, device: str) -> None:
        import torch

        from diffcredit.features.inception_network import InceptionNetwork

        file = self._file()
        state = {name: tensor for name, tensor in read_state(file, KEY).items() if not name.startswith(AUXILIARY)}
        with torch.device("meta"):  # the weights come from the file
            network = InceptionNetwork(self.variant)
        load_state(network, state, file, KEY)
        self._hash = file_hash(file, KEY)
        self._device = device
        self._network = network.eval().requires_grad_(False).to(device, torch.float32)

    def _described(self) -> dict[str, Any]:
        fid = self.variant == "fid"
        return {
            "weights": self._hash,
            "variant": self.variant,
            "resize": f"{SIZE} px, bilinear, {'as TensorFlow 1: not antialiased' if fid else 'antialiased'}, no crop",
            "layer": "last average pooling",
            "logits": "without bias" if fid else "with bias",
        }

    def _forward(self, images: Images) -> "tuple[Tensor, Tensor]":
        import torch

        return self._network(self._input(images).contiguous(memory_format=torch.channels_last))  # faster on a CPU

    def _input(self, images: Images) -> "Tensor":
        """Resize and scale images as in the network's training: (m, h, w, 3) uint8 → (m, 3, 299, 299).

        (x − 128)/128 for ``fid``; x/127.5 − 1 for ``torchvision``, which its normalisation and its network's
        ``transform_input`` amount to.
        """
        if self.variant == "fid":
            import torch

            pixels = torch.tensor(images, device=self._device).permute(0, 3, 1, 2).float()
            return (tensorflow_bilinear(pixels, SIZE) - 128) / 128
        return resized(images, SIZE, "bilinear", self._device) / 127.5 - 1

    def _file(self) -> Path:
        """Return the file of weights, verified unless ``published`` is false."""
        published = PUBLISHED[self.variant]
        if self.weights is None:
            return published.file(KEY)
        file = Path(self.weights).expanduser()
        if self.published:
            published.verify(file, KEY, " or, where it is meant to hold others, say features.published: false")
        return file
